"""Settings from the command line: conversion and ranges."""

import pytest

from clipx.config.setting import parse
from clipx.errors import UserError
from clipx.theory.paper1 import MarginSettings
from clipx.theory.paper2_robust_g import RobustGSettings
from clipx.theory.paper2_true_negatives import TrueNegativesSettings
from clipx.theory.paper3 import PopularitySettings
from clipx.theory.paper4 import GapSettings
from clipx.theory.paper5 import PmiSettings


def test_settings_are_converted_from_text() -> None:
    settings = parse(PopularitySettings, {"n": "[50,100]", "tau": "0.3", "seeds": "2"}, "theory")
    assert (settings.n, settings.tau, settings.seeds) == ((50, 100), 0.3, 2)


def test_an_unknown_key_or_a_wrong_type_is_reported() -> None:
    with pytest.raises(UserError, match="clipx theory popularity: taus is not known; did you mean 'tau'"):
        parse(PopularitySettings, {"taus": "1"}, "theory popularity")
    with pytest.raises(UserError, match="n=many must be a whole number"):
        parse(PopularitySettings, {"n": "10,many"}, "theory popularity")


OUT_OF_RANGE: dict[type, str] = {
    MarginSettings: "K=1 gamma=2.5 gamma_square=0.4 taus=0.1,0 lambdas=-1 xi=-1 equal_steps=0",
    RobustGSettings: "tau=0 mislabelled=1 starts=0 sweep=1",
    TrueNegativesSettings: "p2=0.25 theta0=0.4 taus=-0.1 p2_grid=1",
    PopularitySettings: "tau=0 n=0 n=100,1 seeds=1 n=50 n=50,50",
    GapSettings: "gamma0=2.5 n=0 d=1 beta0=0 growth_d=2 draws=1 scheme_beta1=-1",
    PmiSettings: "N=1 d=0 M=0,2 sigma=0 alpha=-1,0.5 alpha=0.5 alpha=0,0 starts=0 M=8 M=8,8",
}


@pytest.mark.parametrize(
    ("schema", "setting"), [(schema, setting) for schema, text in OUT_OF_RANGE.items() for setting in text.split()]
)
def test_a_setting_out_of_its_range_is_reported(schema: type, setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(UserError, match=f"^{setting} is out of range; allowed: "):
        parse(schema, {key: value}, "theory")


def test_a_gamma_above_that_of_the_regular_simplex_is_refused() -> None:
    with pytest.raises(UserError, match=r"gamma=1.5 .* at most K/\(K-1\) = 1.2 for K=6"):
        parse(MarginSettings, {"gamma": "1.5"}, "theory")
