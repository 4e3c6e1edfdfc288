"""A few values: their mean with its 95% interval (Student's t), the interval of a share, and rank correlation."""

import math


def t_interval(values: list[float], least_deviation: float = 0.0) -> tuple[float, float, float]:
    """Mean and 95% interval of the mean of at least two independent values (Student's t, n - 1 degrees).

    Their standard deviation is taken as `least_deviation` where it is smaller.
    """
    n, centre = len(values), mean(values)
    variance = math.fsum((value - centre) ** 2 for value in values) / (n - 1)
    half = t_quantile(n - 1) * math.sqrt(max(variance, least_deviation**2) / n)
    return centre, centre - half, centre + half


def mean(values: list[float]) -> float:
    """Of at least one value, summed exactly."""
    return math.fsum(values) / len(values)


def t_quantile(degrees: int) -> float:
    """The t with 95% of Student's distribution between -t and t."""
    from scipy import stats  # nearly a second, which training would wait for

    return float(stats.t.ppf(0.975, degrees))


def binomial_interval(hits: int, n: int) -> tuple[float, float]:
    """Exact 95% interval of a share (Clopper and Pearson 1934)."""
    from scipy import stats

    found = stats.binomtest(hits, n).proportion_ci(method="exact")
    return float(found.low), float(found.high)


def spearman(x: list[float], y: list[float]) -> float:
    """Rank correlation; ties share their mean rank; NaN where one side does not vary."""
    from scipy import stats

    if len(set(x)) < 2 or len(set(y)) < 2:
        return math.nan
    return float(stats.spearmanr(x, y).statistic)
