"""The rule that turns the effects of several seeds into a verdict.

An effect is measured once per seed, between runs with the same seed. A larger effect supports the claim. The effects
give a mean and a 95% interval (Student's t; exact binomial for a share of seeds). The verdict compares the interval
with the smallest effect of interest s, which is fixed with the claim before any run:

    holds           the whole interval lies above s
    does not hold   the whole interval lies below s
    undecided       the interval contains s, or there are fewer than three seeds
    not run         there is nothing to measure

s = 0 requires any gain. A negative s requires a loss smaller than |s|.

Error rate: if the true effect is at most s, `holds` occurs in at most 2.5% of experiments. If it is at least s,
`does not hold` occurs in at most 2.5%. These rates are per comparison. A claim with several comparisons holds if all
hold, does not hold if one does not, and is undecided otherwise.

Three seeds often give equal rank correlations, and then the t interval has zero width. A lower bound on the standard
deviation prevents this. In simulation it cut false `holds` from 9% to under 2%.

One kind of comparison can hold without an interval (`Comparison.diverging_arm`): if the arm that is expected to lose
diverges in every seed, no other arm diverges, and at least three seeds have values of the other arms.
"""

import math
from statistics import fmean

from evaluation.claims.types import Comparison, Finding, Verdict
from evaluation.statistics import binomial_interval, t_interval

FEWEST_SEEDS = 3


def judge(comparison: Comparison, effects: list[float], note: str = "", arms: int = 2) -> Finding:
    """Return the finding from `effects`, one per seed; each effect compares `arms` arms."""
    label, least, seeds = comparison.label, comparison.least, len(effects)
    if not effects:
        return Finding(label, "not run", least=least, note=note)
    if seeds < FEWEST_SEEDS:
        few = f"{seeds} seed{'s' if seeds > 1 else ''} in common, {FEWEST_SEEDS} are needed"
        note = "; ".join(filter(None, (few, note)))
        return Finding(label, "undecided", seeds, fmean(effects), least=least, note=note)
    if comparison.interval == "share":
        hits = sum(effect > 0 for effect in effects)
        effect, (low, high) = hits / seeds, binomial_interval(hits, seeds)
    else:
        least_spread = least_deviation(comparison, arms) if comparison.interval == "rank" else 0.0
        effect, low, high = t_interval(effects, least_spread)
    verdict: Verdict = "holds" if low > least else "does not hold" if high < least else "undecided"
    if comparison.interval == "rank":
        low, high = max(low, -1.0), min(high, 1.0)  # a t interval can exceed the range of a correlation
    return Finding(label, verdict, seeds, effect, low, high, least, note)


def least_deviation(comparison: Comparison, arms: int) -> float:
    """Return a lower bound on the standard deviation of rank correlations over `arms` arms.

    It is the larger of the smallest step between rank correlations and 0.4 standard errors at |rho| = `least`.
    """
    return max(12 / (arms * (arms**2 - 1)), 0.4 * (1 - comparison.least**2) / math.sqrt(arms - 1))


def overall(verdicts: list[Verdict]) -> Verdict:
    """Return the verdict on a claim from the verdicts on its comparisons."""
    if all(verdict == "not run" for verdict in verdicts):
        return "not run"
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if all(verdict == "holds" for verdict in verdicts) else "undecided"
