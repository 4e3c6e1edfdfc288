"""The checks of the toy problems, see clipx/verdict.py."""

from clipx.verdict import Check, CheckedClaim, Verdict, half_width, near

__all__ = ["FAILS", "HOLDS", "UNDECIDED", "Check", "CheckedClaim", "half_width", "near"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
UNDECIDED: Verdict = "undecided"
