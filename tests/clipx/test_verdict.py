"""Verdicts of checks and of claims with several checks."""

import pytest

from clipx.verdict import Check, CheckedClaim, Verdict, half_width, near


@pytest.mark.parametrize(
    ("check", "verdict", "expected"),
    [
        (Check("a", 0.3, low=0.25), "holds", ">= 0.25"),
        (Check("a", 0.2, low=0.25), "does not hold", ">= 0.25"),
        (Check("a", 0.3, high=0.25), "does not hold", "<= 0.25"),
        (Check("a", 0.3, low=0.25, error=0.1), "undecided", ">= 0.25"),
        (Check("a", 0.2, low=0.25, error=0.1), "undecided", ">= 0.25"),
        (Check("a", 0.1, low=0.25, error=0.1), "does not hold", ">= 0.25"),
        (Check("a", float("nan"), low=0.25), "undecided", ">= 0.25"),
        (near("a", 1.04, 1.0, 0.05), "holds", "0.95 .. 1.05"),
        (near("a", 0.94, 1.0, 0.05), "does not hold", "0.95 .. 1.05"),
    ],
)
def test_verdict_and_interval_of_a_check(check: Check, verdict: Verdict, expected: str) -> None:
    assert (check.verdict, check.expected) == (verdict, expected)


def test_a_number_that_is_not_finite_becomes_null() -> None:
    row = CheckedClaim("1.1", "words", [Check("a", float("nan"), low=0), Check("b", 2.0, low=0)]).row()
    assert row["measured"] == {"a": None, "b": 2.0}
    assert row["expected"] == {"a": ">= 0", "b": ">= 0"}


def test_half_width_is_that_of_the_normal_interval() -> None:
    assert half_width([1.0, 3.0]) == pytest.approx(1.96)  # standard deviation sqrt(2), two draws
