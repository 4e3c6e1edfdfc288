"""Intervals and rank correlation for a few values; scipy is imported on use, as it would delay training by a second."""

import math
import statistics


def t_interval(values: list[float]) -> tuple[float, float, float]:
    """Return the mean of at least two independent values and its 95% interval (Student's t)."""
    n, mean = len(values), statistics.fmean(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)  # statistics.variance fails on NaN
    half = t_quantile(n - 1) * math.sqrt(variance / n)
    return mean, mean - half, mean + half


def t_quantile(degrees: int) -> float:
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
