"""Intervals, tests and rank correlation. Functions import scipy on use: its import takes a second."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

EQUAL = 1e-9  # relative difference of numbers that are equal up to rounding
ZERO = 1e-12  # a difference of fractions that is 0 up to rounding


def t_interval(values: list[float]) -> tuple[float, float, float]:
    """Return the mean of at least two independent values, and the ends of its 95% interval (Student's t)."""
    from scipy import special  # not stats, whose import takes most of a second

    n, mean = len(values), statistics.fmean(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)  # statistics.variance fails on NaN
    half = float(special.stdtrit(n - 1, 0.975)) * math.sqrt(variance / n)
    return mean, mean - half, mean + half


def binomial_interval(hits: int, n: int) -> tuple[float, float]:
    """Return the exact 95% interval of the share hits / n (Clopper and Pearson 1934)."""
    from scipy import stats

    interval = stats.binomtest(hits, n).proportion_ci(method="exact")
    return float(interval.low), float(interval.high)


def are_equal(values: Sequence[float] | NDArray[np.float64]) -> bool:
    """Return True if the values are equal up to rounding. Such values show no spread, although there may be one."""
    return np.allclose(values, np.mean(values), EQUAL, ZERO)


def spearman(x: list[float], y: list[float]) -> float:
    """Return Spearman's rank correlation; ties get their mean rank; NaN if x or y is constant."""
    from scipy import stats

    if len(set(x)) < 2 or len(set(y)) < 2:
        return math.nan
    return float(stats.spearmanr(x, y).statistic)


def mcnemar(differences: list[int]) -> float:
    """Return the exact two-sided p-value of the hypothesis that two models answer the same questions equally well.

    Under this hypothesis, the sign of each unit's difference is random. The p-value is the probability that a sum of
    randomly signed differences is at least as far from 0 as the observed sum. With one item per unit, this is
    McNemar's test (1947) in its exact form.

    `differences`: for each independent unit, the number of items that only the first model has right, minus the number
    of items that only the second model has right.
    """
    from scipy import stats

    probability = np.ones(1)  # probability of each sum, from the lowest to the highest
    for size, units in Counter(abs(d) for d in differences if d).items():
        of_size = np.zeros(2 * size * units + 1)  # probability of each sum of `units` differences of +size or -size
        of_size[:: 2 * size] = stats.binom.pmf(np.arange(units + 1), units, 0.5)
        probability = np.convolve(probability, of_size)
    distances = np.abs(np.arange(len(probability)) - len(probability) // 2)
    return min(1.0, float(probability[distances >= abs(sum(differences))].sum()))
