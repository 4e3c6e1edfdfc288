"""A claim of a paper, what was measured for it, and the verdict that follows from the numbers alone."""

import math
from dataclasses import dataclass

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"


@dataclass(frozen=True)
class Check:
    """One number beside the interval that the claim puts it in."""

    name: str
    measured: float
    low: float = -math.inf
    high: float = math.inf
    error: float = 0.0  # half the width of the measurement's 95% interval; 0 for what is computed exactly

    @property
    def verdict(self) -> str:
        """`undecided` where the measurement's own interval crosses a bound, or there is no number."""
        low, high = self.measured - self.error, self.measured + self.error
        if not math.isfinite(low) or not math.isfinite(high):
            return UNDECIDED
        if self.low <= low and high <= self.high:
            return HOLDS
        return FAILS if high < self.low or low > self.high else UNDECIDED

    @property
    def expected(self) -> str:
        """The interval in words."""
        if math.isinf(self.high):
            return f">= {self.low:.6g}"
        return f"<= {self.high:.6g}" if math.isinf(self.low) else f"{self.low:.6g} .. {self.high:.6g}"


def near(name: str, measured: float, value: float, tolerance: float) -> Check:
    """A number that the paper gives, or that follows from a formula; `tolerance` is absolute."""
    return Check(name, measured, value - tolerance, value + tolerance)


@dataclass(frozen=True)
class CheckedClaim:
    """`claim` is its number in this project's list, the paper's first; "" for a statement that is in none."""

    claim: str
    statement: str
    checks: list[Check]

    @property
    def verdict(self) -> str:
        """Holds if every check does; one that fails decides against the claim."""
        verdicts = {check.verdict for check in self.checks}
        if FAILS in verdicts:
            return FAILS
        return HOLDS if verdicts == {HOLDS} else UNDECIDED

    def row(self) -> dict[str, object]:
        """The row of claims.json; a number that does not exist is null."""
        measured = {c.name: c.measured if math.isfinite(c.measured) else None for c in self.checks}
        return {
            "claim": self.claim,
            "statement": self.statement,
            "measured": measured,
            "expected": {c.name: c.expected for c in self.checks},
            "verdict": self.verdict,
        }
