"""Verdicts on claims, and claims that a program checks: measured numbers, and the interval predicted for each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["holds", "does not hold", "equivalent", "refuted", "depends", "undecided", "not run"]
REFUTED: tuple[Verdict, ...] = ("does not hold", "equivalent", "refuted")
DECIDED: tuple[Verdict, ...] = ("holds", *REFUTED, "depends")


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a claim from the verdicts on its parts; `refuted` if some, but not all, are equivalent."""
    if all(verdict == "not run" for verdict in verdicts):
        return "not run"
    if "does not hold" in verdicts:
        return "does not hold"
    if "equivalent" in verdicts:
        return "equivalent" if len(set(verdicts)) == 1 else "refuted"
    return "holds" if all(verdict == "holds" for verdict in verdicts) else "undecided"


def within(low: float, high: float, least: float = -math.inf, most: float = math.inf) -> Verdict:
    """Return the verdict on "`least` <= x <= `most`" from an interval [low, high] that contains x.

    Undecided if the interval contains a bound, or if it is not finite.
    """
    if not math.isfinite(low) or not math.isfinite(high):
        return "undecided"
    if least <= low and high <= most:
        return "holds"
    return "does not hold" if high < least or low > most else "undecided"


@dataclass(frozen=True)
class Check:
    """A measured number and the interval [low, high] that the claim predicts for it."""

    name: str
    measured: float
    low: float = -math.inf
    high: float = math.inf
    error: float = 0.0  # half-width of the 95% confidence interval of `measured`; 0 for exact numbers

    @property
    def verdict(self) -> Verdict:
        """The verdict; undecided if the confidence interval crosses a bound or the number is not finite."""
        return within(self.measured - self.error, self.measured + self.error, self.low, self.high)

    @property
    def expected(self) -> str:
        """The predicted interval as text."""
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
    def verdict(self) -> Verdict:
        """The verdict: it holds if all checks hold."""
        return overall([check.verdict for check in self.checks])

    def row(self) -> dict[str, object]:
        """Return the row of claims.json; numbers that are not finite become null."""
        return {
            "claim": self.claim,
            "statement": self.statement,
            "measured": {c.name: c.measured if math.isfinite(c.measured) else None for c in self.checks},
            "expected": {c.name: c.expected for c in self.checks},
            "verdict": self.verdict,
        }
