"""The rule by which seeds become a verdict.

An effect is measured once a seed, always between runs of the same seed, and points in the claim's direction.
From its values come a mean and a 95% interval (Student's t; exact binomial for a share of seeds). With the
smallest effect of interest s, written down with the claim before any run:

    holds           the whole interval lies above s
    does not hold   the whole interval lies below s
    undecided       it contains s, or there are fewer than three seeds
    not run         there is nothing to measure

Rank correlations of a few arms take few values, so that three seeds can agree by chance; without a bound on their
spread, a true 0.8 passed for more in up to 9% of simulated experiments, with `least_deviation` in less than 2%.

So for an effect of at most s the verdict `holds` comes up in at most 2.5% of experiments, and for one of at
least s `does not hold` does. s = 0 asks for any gain at all; a negative s asks that no more than that is lost.
A claim of several parts holds if all hold, does not hold if one does not, and is undecided otherwise.
"""

import math
from collections.abc import Callable

from evaluation.claims.types import Finding, Part, Verdict
from evaluation.student import mean, t_interval

FEWEST_SEEDS = 3


def judge(part: Part, values: list[float], note: str = "", arms: int = 2) -> Finding:
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
    return Finding(part.label, verdict, len(values), effect, low, high, part.least, note)


def least_deviation(part: Part, arms: int) -> float:
    """Of a rank correlation over arms: its smallest step, or 0.4 of its standard error where its size is that of least.

    Fewer arms or a smaller correlation make equal ones in three seeds less of a surprise.
    """
    return max(12 / (arms * (arms**2 - 1)), 0.4 * (1 - part.least**2) / math.sqrt(arms - 1))


def overall(verdicts: list[Verdict]) -> Verdict:
    """Of a claim from those of its parts."""
    if all(verdict == "not run" for verdict in verdicts):
        return "not run"
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if all(verdict == "holds" for verdict in verdicts) else "undecided"


def binomial_interval(hits: int, n: int) -> tuple[float, float]:
    """Exact 95% interval of a share (Clopper and Pearson 1934), by bisection."""
    low = 0.0 if hits == 0 else _solve(lambda p: 1 - _at_most(hits - 1, n, p), 0.025)
    high = 1.0 if hits == n else 1 - _solve(lambda q: 1 - _at_most(n - hits - 1, n, q), 0.025)
    return low, high


def _at_most(k: int, n: int, p: float) -> float:
    return math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def _solve(rising: Callable[[float], float], target: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return (low + high) / 2
