"""Settings from the command line (conversion and ranges), and verdicts of checks and claims."""

import pytest

from clipx.errors import UserError
from clipx.theory.claims import FAILS, HOLDS, UNDECIDED, Check, CheckedClaim, half_width, near
from clipx.theory.experiment import Settings, parse
from clipx.theory.paper1 import MarginSettings
from clipx.theory.paper2_robust_g import RobustGSettings
from clipx.theory.paper2_true_negatives import TrueNegativesSettings
from clipx.theory.paper3 import PopularitySettings
from clipx.theory.paper4 import GapSettings
from clipx.theory.paper5 import PmiSettings


def test_settings_are_converted_from_text() -> None:
    settings = parse(PopularitySettings, {"n": "[50,100]", "tau": "0.3", "seeds": "2"})
    assert (settings.n, settings.tau, settings.seeds) == ((50, 100), 0.3, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"taus": "1"}, "clipx theory: taus is not known; did you mean 'tau'"),
        ({"tau": "warm"}, "tau=warm must be a number"),
        ({"n": "10,many"}, "n=10,many must be ints, as in a,b,c"),
        ({"seeds": "1.5"}, "seeds=1.5 must be a number .int."),
    ],
)
def test_an_unknown_key_or_a_wrong_type_is_reported(given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(PopularitySettings, given)


OUT_OF_RANGE: dict[type[Settings], str] = {
    MarginSettings: "K=1 gamma=2.5 gamma_square=0.4 taus=0.1,0.0 lambdas=-1.0 xi=-1.0 equal_steps=0",
    RobustGSettings: "tau=0.0 mislabelled=1.0 starts=0 sweep=1",
    TrueNegativesSettings: "p2=0.25 theta0=0.4 taus=-0.1 p2_grid=1",
    PopularitySettings: "tau=0.0 n=0 n=100,1 seeds=1 n=50 n=50,50",
    GapSettings: "gamma0=2.5 n=0 d=1 beta0=0.0 growth_d=2 draws=1 scheme_beta1=-1.0",
    PmiSettings: "N=1 d=0 M=0,2 sigma=0.0 alpha=-1.0,0.5 alpha=0.5 alpha=0.0,0.0 starts=0 M=8 M=8,8",
}


@pytest.mark.parametrize(
    ("schema", "setting"), [(schema, setting) for schema, text in OUT_OF_RANGE.items() for setting in text.split()]
)
def test_a_setting_out_of_its_range_is_reported(schema: type[Settings], setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(UserError, match=f"^{setting} is out of range; allowed: "):
        parse(schema, {key: value})


def test_a_gamma_above_that_of_the_regular_simplex_is_refused() -> None:
    with pytest.raises(UserError, match=r"gamma=1.5 .* at most K/\(K-1\) = 1.2 for K=6"):
        parse(MarginSettings, {"gamma": "1.5"})


@pytest.mark.parametrize(
    ("check", "verdict", "expected"),
    [
        (Check("a", 0.3, low=0.25), HOLDS, ">= 0.25"),
        (Check("a", 0.2, low=0.25), FAILS, ">= 0.25"),
        (Check("a", 0.3, high=0.25), FAILS, "<= 0.25"),
        (Check("a", 0.3, low=0.25, error=0.1), UNDECIDED, ">= 0.25"),
        (Check("a", 0.2, low=0.25, error=0.1), UNDECIDED, ">= 0.25"),
        (Check("a", 0.1, low=0.25, error=0.1), FAILS, ">= 0.25"),
        (Check("a", float("nan"), low=0.25), UNDECIDED, ">= 0.25"),
        (near("a", 1.04, 1.0, 0.05), HOLDS, "0.95 .. 1.05"),
        (near("a", 0.94, 1.0, 0.05), FAILS, "0.95 .. 1.05"),
    ],
)
def test_verdict_and_interval_of_a_check(check: Check, verdict: str, expected: str) -> None:
    assert (check.verdict, check.expected) == (verdict, expected)


def test_one_failed_check_fails_the_claim_and_one_undecided_check_leaves_it_undecided() -> None:
    good, bad, undecided = Check("g", 1, low=0), Check("b", -1, low=0), Check("o", 0.1, low=0, error=1)
    assert CheckedClaim("1.1", "", [good, good]).verdict == HOLDS
    assert CheckedClaim("1.1", "", [good, undecided]).verdict == UNDECIDED
    assert CheckedClaim("1.1", "", [good, undecided, bad]).verdict == FAILS
    assert CheckedClaim("1.1", "", []).verdict == UNDECIDED


def test_a_number_that_is_not_finite_becomes_null() -> None:
    row = CheckedClaim("1.1", "words", [Check("a", float("nan"), low=0), Check("b", 2.0, low=0)]).row()
    assert row["measured"] == {"a": None, "b": 2.0}
    assert row["expected"] == {"a": ">= 0", "b": ">= 0"}


def test_half_width_is_that_of_the_normal_interval() -> None:
    assert half_width([1.0, 3.0]) == pytest.approx(1.96)  # standard deviation sqrt(2), two draws
