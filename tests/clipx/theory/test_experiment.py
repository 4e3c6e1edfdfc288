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
