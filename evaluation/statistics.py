"""Intervals and rank correlation for a few values; scipy is imported on use, as it would delay training by a second."""

import math
import statistics


def t_interval(values: list[float], least_deviation: float = 0.0) -> tuple[float, float, float]:
    """Return the mean of at least two independent values and its 95% interval (Student's t, n - 1 degrees of freedom).

    `least_deviation` is a lower bound on their standard deviation.
    """
    n, mean = len(values), statistics.fmean(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)  # statistics.variance fails on NaN
    half = t_quantile(n - 1) * math.sqrt(max(variance, least_deviation**2) / n)
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


def log_spread_ratio(steady: list[float], other: list[float]) -> tuple[float, float, float]:
    """Return log(sd(other) / sd(steady)) and its 95% interval from the F distribution; NaN if `steady` is constant.

    The values are independent and normal, at least two of each. Levene's test with medians (Brown and Forsythe 1974)
    does not need normal values, but with three seeds its p-value stays above 0.1, however large the ratio.
    """
    from scipy import stats

    if len(set(steady)) < 2:
        return (math.nan,) * 3
    effect = math.log(statistics.stdev(other) / statistics.stdev(steady)) if len(set(other)) > 1 else -math.inf
    high, low = (math.log(float(stats.f.ppf(q, len(other) - 1, len(steady) - 1))) / 2 for q in (0.025, 0.975))
    return effect, effect - low, effect - high


def spearman(x: list[float], y: list[float]) -> float:
    """Return the rank correlation, with mean ranks for ties; NaN if x or y is constant."""
    from scipy import stats

    if len(set(x)) < 2 or len(set(y)) < 2:
        return math.nan
    return float(stats.spearmanr(x, y).statistic)
