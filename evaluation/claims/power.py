"""Power of the rule in verdict.py: how many seeds decide a comparison, and which distance from s they detect.

s is the smallest effect of interest.
"""

import numpy as np

from evaluation.claims.types import OVER_ARMS, Comparison, Estimate, Finding, Outcome

POWER = 0.8
MOST_SEEDS = 10_000


def open_parts(outcome: Outcome) -> list[tuple[Comparison, Finding]]:
    """Return the undecided parts of an undecided claim that more seeds can decide, with their findings.

    A part of kind rank or weak_rank that has an estimate is left out, because more seeds hardly change it. So is a part
    that needs a run without a number: every look at more seeds uses this run too.
    """
    if outcome.verdict != "undecided":
        return []
    parts = zip(outcome.claim.parts(outcome.recipe), outcome.findings, strict=True)
    return [
        (part, finding)
        for part, finding in parts
        if finding.verdict == "undecided" and not finding.blocked and not (part.kind in OVER_ARMS and finding.estimate)
    ]


def look_reached(finding: Finding, looks: tuple[int, ...]) -> int | None:
    """Return the look that decides an undecided part with 80% power; None if no look does or the power is unknown.

    With fewer seeds than at the first look, return the first look.
    """
    if finding.seeds < looks[0]:
        return looks[0]
    needed = finding.seeds_needed
    return None if needed is None else next((look for look in looks if look >= needed), None)


def seeds_needed(estimate: Estimate, least: float, seeds: int, error: float) -> int | None:
    """Return the number of seeds that decide with 80% power if the effect and the spread are as observed.

    None: more than 10,000 seeds are needed, the spread is unknown or 0, or the effect equals `least`.
    """
    distance, spread = abs(estimate.effect - least), estimate.spread
    if not spread or not distance:
        return None
    n = np.unique(np.geomspace(max(3, seeds + 1), MOST_SEEDS, 400).astype(int))
    enough = n[_power(distance, spread, n, error) >= POWER]
    return int(enough[0]) if len(enough) else None


def detectable(estimate: Estimate, seeds: int, error: float) -> float | None:
    """Return the distance between effect and s that `seeds` seeds detect with 80% power; None without a spread."""
    if not estimate.spread:
        return None
    sizes = np.geomspace(0.05, 1000, 4000) * estimate.spread
    found = sizes[_power(sizes, estimate.spread, np.array([seeds]), error) >= POWER]
    return float(found[0]) if len(found) else None


def _power(distance: float | np.ndarray, spread: float, n: np.ndarray, error: float) -> np.ndarray:
    """Return the probability that Student's t of n seeds exceeds its 1 - `error` quantile (noncentral t)."""
    from scipy import stats

    power: np.ndarray = stats.nct.sf(stats.t.isf(error, n - 1), n - 1, distance * np.sqrt(n) / spread)
    return power
