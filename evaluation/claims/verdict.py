"""The rule: from the values of seeds or arms to an estimate, and from estimates to verdicts.

docs/claims.md explains it without formulas.

A larger effect supports the claim. The smallest effect of interest s is fixed with the claim, before any run:

    holds           the effect is larger than s
    equivalent      the effect lies between -s and s: if it exists, it is too small to matter
    does not hold   the effect is smaller than s, and may be smaller than -s
    undecided       the data allow values on both sides of s, or there are fewer seeds than at the first look
    not run         there is nothing to measure

s = 0 requires a gain of any size. A negative s allows a loss, if it is smaller than |s|. Only differences between arms
with s > 0 can be `equivalent`.

Looks: a claim is judged at 3, 5 and 8 seeds (by default) and at no other number, so that a user may add seeds until the
claim is decided. Each look has its own error rate (evaluation.claims.design.spent_errors), together 2.5% in each
direction. An interval has the coverage 1 - 2 * error of its look.

A look at n seeds uses seeds 0 to n - 1. If the design has a `failed_loss`, seeds that diverged or failed are counted
apart. Otherwise, if a compared arm diverged in some of these seeds, the verdict on the comparison is `undecided`, also
with more seeds. It is `not run` if no seed has numbers of every compared arm.

Parts: the comparisons of a claim. The claim holds if all parts hold, and is refuted if one part is refuted. To keep the
error rate of a refutation, the p-values of the parts are adjusted by Holm's method. A report also marks the verdicts
that do not survive Holm's method over all of its claims.

Where an arm is expected to diverge (`Comparison.diverging_arm`), the part also holds if that arm diverges in every
seed, no other arm diverges, and the seeds suffice to show that the arm diverges in more than half of all runs (eight
seeds).

Estimates: `error` is the one-sided error rate of a look; an interval misses the true effect with probability 2 * error.
Each effect is estimated from its own seeds (paired t). A variance pooled over all arms of a recipe has more degrees of
freedom, but is wrong if arms differ in spread or move together: in simulations up to 40% of verdicts were false.
Pooling only after a test of equal variances at level 0.1 lowered this to 6%. A stricter test, with 2.5% false verdicts,
pooled so rarely that it gained nothing with five seeds or more.
"""

import math
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from clipx.verdict import DECIDED, REFUTED, Verdict
from evaluation.claims.design import ERROR
from evaluation.claims.types import MOST_SEEDS, Comparison, Estimate, Finding, Outcome
from evaluation.statistics import EQUAL, are_equal

POWER = 0.8  # for the number of seeds needed
FEWEST_OF_TWO_GROUPS = 8  # effects
GAP_OF_TWO_GROUPS = 4.5  # standard deviations within the groups; `make bench-rule` shows what this costs and gains
FARTHEST = 40.0  # largest log ratio of squared spreads in an interval


def judge(
    comparison: Comparison,
    estimate: Estimate,
    seeds: int,
    error: float,
    note: str = "",
    blocked: str = "",
    last_error: float | None = None,
) -> Finding:
    """Return the finding of one comparison at a look with `seeds` seeds; the other parts of its claim do not matter.

    Args:
        error: one-sided error rate of this look.
        last_error: that of the last look; None: this is the last.
    """
    verdict = verdict_of(estimate, error)
    found = Finding(
        comparison.label, verdict, seeds, estimate, comparison.least, note, error, last_error or error, blocked
    )
    return found if verdict != "undecided" else _with_power(found)


def verdict_of(estimate: Estimate, error: float) -> Verdict:
    """Return the verdict on one comparison, without regard to the other parts of its claim."""
    if estimate.p_above <= error:
        return "holds"
    if estimate.p_below <= error:
        return "equivalent" if estimate.p_inside <= error else "does not hold"
    return "undecided"


def adjust(findings: list[Finding]) -> list[Finding]:
    """Return the findings of a claim; a refuted part whose p-value is too large after Holm's method is undecided."""
    parts = len(findings)
    found = []
    for finding, p in zip(findings, holm([_p_values(finding)[1] for finding in findings]), strict=True):
        if finding.verdict in REFUTED and p > ERROR:
            note = joined(finding.note, f"refuted alone, but not after Holm's adjustment for {parts} parts")
            finding = _with_power(replace(finding, verdict="undecided", note=note), parts)
        elif finding.verdict == "equivalent" and finding.estimate and parts * finding.estimate.p_inside > finding.error:
            finding = replace(finding, verdict="does not hold")
        found.append(finding)
    return found


def p_value(findings: list[Finding]) -> float | None:
    """Return the p-value of a claim's verdict over all looks; None if no part has an estimate.

    It is the smaller of the p-values of `holds` and of a refutation. The p-value of `holds` is the largest of the
    parts' p-values, that of a refutation the smallest after Holm's method; it is 1 for a part without an estimate.
    """
    if all(finding.estimate is None for finding in findings):
        return None
    both = [_p_values(finding) for finding in findings]
    return min(max(above for above, _ in both), *holm([below for _, below in both]))


def survives_holm(outcomes: Sequence[Outcome]) -> dict[str, bool]:
    """Return "CLAIM RECIPE" -> True if the verdict survives Holm's method over all claims of a report."""
    judged = [outcome for outcome in outcomes if outcome.p is not None and outcome.verdict in DECIDED]
    of_all = [outcome.p for outcome in outcomes if outcome.p is not None]
    adjusted = dict(zip(of_all, holm(of_all), strict=True))
    return {f"{o.claim.id} {o.recipe}": adjusted[o.p] <= ERROR for o in judged if o.p is not None}


def holm(p_values: list[float]) -> list[float]:
    """Return p-values adjusted by Holm's method (1979) for the number of tests.

    statsmodels' `multipletests` gives the same, but takes a third of a second, because every call collects garbage.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _p_values(finding: Finding) -> tuple[float, float]:
    """Return `p_above` and `p_below` over all looks: times ERROR / error of the look, at most 1."""
    if finding.estimate is None:
        return 1.0, 1.0
    of_look = finding.estimate.p_above, finding.estimate.p_below
    return min(1.0, of_look[0] * ERROR / finding.error), min(1.0, of_look[1] * ERROR / finding.error)


def _with_power(finding: Finding, parts: int = 1) -> Finding:
    """Add to an undecided finding the number of seeds needed, if there is a spread.

    If more seeds cannot decide it, add the reason instead. `parts`: those of its claim that share the error rate.
    """
    estimate, least = finding.estimate, finding.least
    if finding.blocked:
        return replace(finding, note=joined(no_help(finding.blocked), finding.note))
    if estimate is None or estimate.spread is None or least is None:
        return finding
    if not estimate.spread:
        same = "all seeds have the same effect, so they do not show how far another seed may differ"
        return replace(finding, note=joined(same, finding.note))
    distance, error = abs(estimate.effect - least), finding.last_error / parts
    return replace(finding, seeds_needed=seeds_needed(distance, estimate.spread, finding.seeds, error))


def no_help(reason: str) -> str:
    """Return the note on an undecided finding that more seeds cannot decide."""
    return f"more seeds do not help: {reason}"


def joined(*texts: str) -> str:
    """Return the texts that are not empty, separated by semicolons."""
    return "; ".join(filter(None, texts))


def open_parts(outcome: Outcome) -> list[tuple[Comparison, Finding]]:
    """Return the undecided parts of an undecided claim that more seeds can decide, with their findings."""
    if outcome.verdict != "undecided":
        return []
    parts = zip(outcome.claim.parts(outcome.recipe), outcome.findings, strict=True)
    return [(part, found) for part, found in parts if found.verdict == "undecided" and not _why_stuck(found)]


def stuck_parts(outcome: Outcome) -> list[tuple[Finding, str]]:
    """Return the parts without a verdict that more seeds cannot decide, each with the reason; [] if decided."""
    if outcome.verdict in DECIDED:
        return []
    return [(found, reason) for found in outcome.findings if (reason := _why_stuck(found))]


def _why_stuck(finding: Finding) -> str:
    """Return why more seeds alone cannot decide a part; "" if they may, or if it is decided.

    It has no numbers, it is not judged, or every look at more seeds uses a run without a number.
    """
    if finding.verdict == "not run":
        return finding.note
    return no_help(finding.blocked) if finding.verdict == "undecided" and finding.blocked else ""


def look_reached(finding: Finding, looks: Collection[int]) -> int | None:
    """Return the look that decides an undecided part with 80% power; None if no look does or the power is unknown.

    With fewer seeds than at the first look, return the first look.
    """
    at, needed = max(finding.look, finding.seeds), finding.seeds_needed
    if at < min(looks):
        return min(looks)
    if needed is None:
        return None
    # as many of the further seeds fail as before
    return next((look for look in sorted(looks) if look * finding.seeds >= needed * at), None)


def seeds_needed(distance: float, spread: float, seeds: int, error: float) -> float:
    """Return how many seeds decide with 80% power, for an effect with this distance from s and this spread.

    More than `seeds`; inf if more than MOST_SEEDS are needed.
    """
    from scipy import special  # not stats, whose import takes most of a second

    def power(n: int) -> float:
        """Return the probability that Student's t of n seeds exceeds its 1 - `error` quantile (noncentral t)."""
        return 1 - float(special.nctdtr(n - 1, distance * math.sqrt(n) / spread, -special.stdtrit(n - 1, error)))

    n = np.unique(np.geomspace(max(3, seeds + 1), MOST_SEEDS, 400).astype(int))
    at = bisect_left(n, POWER, key=power)
    return int(n[at]) if at < len(n) else math.inf


def mean_estimate(comparison: Comparison, effects: list[float], error: float) -> Estimate:
    """Estimate the mean effect over at least two seeds (Student's t).

    Equal effects give no interval and decide nothing. A count of few test items can be the same in three seeds and
    another in the fourth: the true spread is not 0.
    """
    from scipy import special

    n, mean = len(effects), fmean(effects)
    if are_equal(effects):
        return Estimate(mean, math.nan, math.nan, 1.0, 1.0, spread=0.0)
    spread, df = float(np.std(effects, ddof=1)), n - 1
    half = -float(special.stdtrit(df, error)) * spread / math.sqrt(n)
    p_above, p_below, p_inside = t_test(mean, spread / math.sqrt(n), df, comparison)
    return Estimate(mean, mean - half, mean + half, p_above, p_below, p_inside, spread)


def are_two_groups(effects: list[float]) -> bool:
    """Return True if eight effects or more fall visibly into two groups, for example because some seeds did not train.

    The largest gap between neighbours is then above GAP_OF_TWO_GROUPS. Eight normal effects look so in 3% of
    experiments, 20 in none.
    """
    n, ordered = len(effects), np.sort(effects)
    if n < FEWEST_OF_TWO_GROUPS:
        return False
    at = int(np.diff(ordered).argmax()) + 1
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in (ordered[:at], ordered[at:]))
    return bool(ordered[at] - ordered[at - 1] > GAP_OF_TWO_GROUPS * math.sqrt(squares / (n - 2)))


def t_test(mean: float, se: float, df: float, comparison: Comparison) -> tuple[float, float, float]:
    """Return `p_above`, `p_below` and `p_inside` from a mean, its standard error above 0 and its degrees of freedom."""
    from scipy import special

    def p_at_most(bound: float) -> float:
        """Return the p-value of "the true effect is at most `bound`"."""
        return float(special.stdtr(df, (bound - mean) / se))

    least = comparison.least
    p_below = 1 - p_at_most(least)
    is_difference = bool(comparison.contrast) and least > 0
    p_inside = max(p_below, p_at_most(-least)) if is_difference else 1.0
    return p_at_most(least), p_below, p_inside


def share_estimate(least: float, hits: int, n: int, error: float) -> Estimate:
    """Estimate the share hits / n of seeds and test it against `least` (exact binomial, Clopper and Pearson 1934)."""
    from scipy import stats

    greater, less = (stats.binomtest(hits, n, least, alternative=side).pvalue for side in ("greater", "less"))
    interval = stats.binomtest(hits, n).proportion_ci(1 - 2 * error, method="exact")
    return Estimate(hits / n, float(interval.low), float(interval.high), float(greater), float(less))


def spread_estimate(comparison: Comparison, values: NDArray[np.float64], error: float) -> Estimate:
    """Estimate log(spread of the second arm / spread of the first arm)^2 over seeds, by Brown and Forsythe (1974).

    The spread is the mean absolute deviation from the median. With an odd number of seeds, one deviation of each arm is
    always 0 and is left out (Hines and Hines 2000). The arms count as independent (Welch's t), which is conservative,
    because arms with the same seeds vary together. An F test would be wrong if the values have heavy tails.

    `values` are [2, n], by arm and seed.
    """
    from scipy import optimize, special

    deviations = np.sort(np.abs(values - np.median(values, axis=1, keepdims=True)), axis=1)[:, values.shape[1] % 2 :]
    n, (first, second) = deviations.shape[1], deviations.mean(axis=1)
    effect, variances = 2 * math.log(second / first), deviations.var(axis=1, ddof=1) / n
    if np.ptp(deviations, axis=1).max() <= EQUAL * deviations.max():  # three equidistant seeds: no spread to test with
        return Estimate(effect, -math.inf, math.inf, 1.0, 1.0)

    def p_at_most(bound: float) -> float:
        """Return the p-value of "the true effect is at most `bound`"."""
        scale = math.exp(bound / 2)
        terms = np.array([scale**2 * variances[0], variances[1]])
        df = (n - 1) * terms.sum() ** 2 / (terms**2).sum()
        return float(special.stdtr(df, (scale * first - second) / math.sqrt(terms.sum())))

    def bound_at(p: float) -> float:
        """Return the effect whose p-value is `p`; infinite if the seeds exclude no effect on this side."""
        low, high = (p_at_most(sign * FARTHEST) - p for sign in (-1, 1))
        if low > 0 or high < 0:
            return math.copysign(math.inf, p - 0.5)
        return float(optimize.brentq(lambda bound: p_at_most(bound) - p, -FARTHEST, FARTHEST))

    p_above = p_at_most(comparison.least)
    return Estimate(effect, bound_at(error), bound_at(1 - error), p_above, 1 - p_above)
