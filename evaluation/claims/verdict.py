"""The rule by which seeds become a verdict.

An effect is measured once a seed, always between runs of the same seed, and oriented so that more of it supports the
claim. From its values come a mean and a 95% interval (Student's t; exact binomial for a share of seeds). With the
smallest effect of interest s, written down with the claim before any run:

    holds           the whole interval lies above s
    does not hold   the whole interval lies below s
    undecided       it contains s, or there are fewer than three seeds
    not run         there is nothing to measure

Three seeds often give equal rank correlations, and then the t interval has no width. A lower bound on their deviation
prevents this: in simulation it cut false `holds` from 9% to under 2%.

So for an effect of at most s the verdict `holds` comes up in at most 2.5% of experiments, and for one of at
least s `does not hold` does. s = 0 asks for any gain at all; a negative s asks that no more than that is lost.
The 2.5% is per part. A claim of several parts holds if all hold, does not hold if one does not, and is undecided
otherwise.

One kind of part can hold without an interval (`Part.fatal`): where the arm that it expects to lose diverged in every
seed, no other arm in any, and at least three seeds have the numbers of the others.
"""

import math

from evaluation.claims.types import Comparison, Finding, Verdict
from evaluation.statistics import binomial_interval, mean, t_interval

FEWEST_SEEDS = 3


def judge(part: Comparison, values: list[float], note: str = "", arms: int = 2) -> Finding:
    """The finding on the effects of the seeds; `arms` are behind each of them."""
    if not values:
        return Finding(part.label, "not run", least=part.least, note=note)
    if len(values) < FEWEST_SEEDS:
        few = f"{len(values)} seed{'s' if len(values) > 1 else ''} in common, {FEWEST_SEEDS} are needed"
        note = "; ".join(filter(None, (few, note)))
        return Finding(part.label, "undecided", len(values), mean(values), least=part.least, note=note)
    if part.interval == "share":
        hits = sum(value > 0 for value in values)
        effect, (low, high) = hits / len(values), binomial_interval(hits, len(values))
    else:
        effect, low, high = t_interval(values, least_deviation(part, arms) if part.interval == "rank" else 0.0)
    verdict: Verdict = "holds" if low > part.least else "does not hold" if high < part.least else "undecided"
    if part.interval == "rank":
        low, high = max(low, -1.0), min(high, 1.0)  # Student's t does not know where a correlation ends
    return Finding(part.label, verdict, len(values), effect, low, high, part.least, note)


def least_deviation(part: Comparison, arms: int) -> float:
    """Lower bound on the deviation of rank correlations over `arms` arms.

    The smallest step that the statistic can take, or 0.4 standard errors at |rho| = `least`.
    """
    return max(12 / (arms * (arms**2 - 1)), 0.4 * (1 - part.least**2) / math.sqrt(arms - 1))


def overall(verdicts: list[Verdict]) -> Verdict:
    """Of a claim from those of its parts."""
    if all(verdict == "not run" for verdict in verdicts):
        return "not run"
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if all(verdict == "holds" for verdict in verdicts) else "undecided"
