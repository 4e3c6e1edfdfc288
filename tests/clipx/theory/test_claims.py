"""Verdicts follow from the numbers, and nothing else."""

import pytest

from clipx.errors import UserError
from clipx.theory.claims import FAILS, HOLDS, UNDECIDED, Check, CheckedClaim, near
from clipx.theory.experiment import parse
from clipx.theory.paper3.popularity import PopularitySettings


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
def test_a_number_against_its_interval(check: Check, verdict: str, expected: str) -> None:
    assert (check.verdict, check.expected) == (verdict, expected)


def test_one_failure_decides_and_one_doubt_leaves_open() -> None:
    good, bad, open_ = Check("g", 1, low=0), Check("b", -1, low=0), Check("o", 0.1, low=0, error=1)
    assert CheckedClaim("1.1", "", [good, good]).verdict == HOLDS
    assert CheckedClaim("1.1", "", [good, open_]).verdict == UNDECIDED
    assert CheckedClaim("1.1", "", [good, open_, bad]).verdict == FAILS
    assert CheckedClaim("1.1", "", []).verdict == UNDECIDED


def test_a_row_is_readable_where_a_number_is_missing() -> None:
    row = CheckedClaim("1.1", "words", [Check("a", float("nan"), low=0), Check("b", 2.0, low=0)]).row()
    assert row["measured"] == {"a": None, "b": 2.0}
    assert row["expected"] == {"a": ">= 0", "b": ">= 0"}


def test_settings_are_read_from_text() -> None:
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
def test_what_is_not_a_setting_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(PopularitySettings, given)
