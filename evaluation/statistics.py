"""Intervals, tests and rank correlation. Functions import scipy on use: its import takes a second."""

import math
import statistics
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
