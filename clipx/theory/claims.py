"""Checks of a paper's claims: measured numbers, the interval that the claim predicts, and the verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"


@dataclass(frozen=True)
class Check:
    """A measured number and the interval [low, high] that the claim predicts for it."""

    name: str
    measured: float
    low: float = -math.inf
    high: float = math.inf
    error: float = 0.0  # half-width of the 95% confidence interval of `measured`; 0 for exact numbers

    @property
    def verdict(self) -> str:
        """Return UNDECIDED if the confidence interval crosses a bound or the number is not finite."""
        low, high = self.measured - self.error, self.measured + self.error
        if not math.isfinite(low) or not math.isfinite(high):
            return UNDECIDED
        if self.low <= low and high <= self.high:
            return HOLDS
        return FAILS if high < self.low or low > self.high else UNDECIDED

    @property
    def expected(self) -> str:
        """Return the predicted interval as text."""
        if math.isinf(self.high):
            return f">= {self.low:.6g}"
        return f"<= {self.high:.6g}" if math.isinf(self.low) else f"{self.low:.6g} .. {self.high:.6g}"


def near(name: str, measured: float, value: float, tolerance: float) -> Check:
    """Check against a number from the paper or from a formula; `tolerance` is absolute."""
    return Check(name, measured, value - tolerance, value + tolerance)


def half_width(draws: NDArray[np.float64] | Sequence[float]) -> NDArray[np.float64]:
    """Return the half-width of the normal 95% confidence interval of the mean over the last axis."""
    return np.asarray(1.96 * np.std(draws, axis=-1, ddof=1) / np.sqrt(np.shape(draws)[-1]))


@dataclass(frozen=True)
class CheckedClaim:
    """A claim with its checks."""

    claim: str  # id in the claim table (`clipx ls claims`); "" for statements outside the table
    statement: str
    checks: list[Check]

    @property
    def verdict(self) -> str:
        """Return HOLDS if all checks hold, FAILS if any check fails, else UNDECIDED."""
        verdicts = {check.verdict for check in self.checks}
        if FAILS in verdicts:
            return FAILS
        return HOLDS if verdicts == {HOLDS} else UNDECIDED

    def row(self) -> dict[str, object]:
        """Return the row of claims.json; numbers that are not finite become null."""
        return {
            "claim": self.claim,
            "statement": self.statement,
            "measured": {c.name: c.measured if math.isfinite(c.measured) else None for c in self.checks},
            "expected": {c.name: c.expected for c in self.checks},
            "verdict": self.verdict,
        }
