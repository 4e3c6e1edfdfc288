"""Intervals, tests and rank correlation; scipy is imported on use, as it would delay training by a second."""

import math
import statistics
from collections import Counter

import numpy as np


def t_interval(values: list[float]) -> tuple[float, float, float]:
    """Return the mean of at least two independent values and its 95% interval (Student's t)."""
    n, mean = len(values), statistics.fmean(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)  # statistics.variance fails on NaN
    half = t_quantile(n - 1) * math.sqrt(variance / n)
    return mean, mean - half, mean + half


def t_quantile(degrees: float) -> float:
    """Return the t such that 95% of Student's distribution lies between -t and t."""
    from scipy import stats

    return float(stats.t.ppf(0.975, degrees))


def binomial_interval(hits: int, n: int) -> tuple[float, float]:
    """Return the exact 95% interval of a share (Clopper and Pearson 1934)."""
    from scipy import stats

    interval = stats.binomtest(hits, n).proportion_ci(method="exact")
    return float(interval.low), float(interval.high)


def spearman(x: list[float], y: list[float]) -> float:
    """Return the rank correlation, with mean ranks for ties; NaN if x or y is constant."""
    from scipy import stats

    if len(set(x)) < 2 or len(set(y)) < 2:
        return math.nan
    return float(stats.spearmanr(x, y).statistic)


def mcnemar(differences: list[int]) -> float:
    """Return the exact two-sided p-value of no difference between two models that answer the same questions.

    Without a difference, the sign of each unit's difference is random. The p-value is the probability that the sum of
    randomly signed differences is at least as far from 0. With one item per unit, this is McNemar's test (1947).

    Args:
        differences: per independent unit, the number of items that only the first model has right minus the number
            that only the second has right.
    """
    from scipy import stats

    chance = np.ones(1)  # probability of each sum, from the lowest to the highest
    for size, units in Counter(abs(d) for d in differences if d).items():
        of_size = np.zeros(2 * size * units + 1)
        of_size[:: 2 * size] = stats.binom.pmf(np.arange(units + 1), units, 0.5)
        chance = np.convolve(chance, of_size)
    sums = np.abs(np.arange(len(chance)) - len(chance) // 2)
    return min(1.0, float(chance[sums >= abs(sum(differences))].sum()))
