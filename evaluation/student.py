"""A few values: their mean with its 95% interval (Student's t), and rank correlation."""

import math
from itertools import groupby


def t_interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and 95% interval of the mean of at least two independent values (Student's t, n - 1 degrees)."""
    n, centre = len(values), mean(values)
    variance = math.fsum((value - centre) ** 2 for value in values) / (n - 1)
    half = t_quantile(n - 1) * math.sqrt(variance / n)
    return centre, centre - half, centre + half


def mean(values: list[float]) -> float:
    """Of at least one value, summed exactly."""
    return math.fsum(values) / len(values)


def t_quantile(degrees: int) -> float:
    """The t with 95% of Student's distribution between -t and t, by bisection."""
    low, high = 1.9, 13.0  # 1.96 for endless degrees, 12.7 for one
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_mass(middle, degrees) < 0.95 else (low, middle)
    return (low + high) / 2


def _central_mass(t: float, degrees: int) -> float:
    """P(-t < T < t) for integer degrees (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    theta = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = math.cos(theta) if odd else 1.0, 0.0
    for j in range(1, degrees // 2 + 1):
        total += term
        term *= (2 * j / (2 * j + 1) if odd else (2 * j - 1) / (2 * j)) * math.cos(theta) ** 2
    return 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total


def spearman(x: list[float], y: list[float]) -> float:
    """Rank correlation; ties share their mean rank; 0 where one side does not vary."""
    a, b = _centred_ranks(x), _centred_ranks(y)
    ab, aa, bb = (math.fsum(p * q for p, q in zip(*pair, strict=True)) for pair in ((a, b), (a, a), (b, b)))
    return ab / math.sqrt(aa * bb) if aa * bb else 0.0


def _centred_ranks(values: list[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    for _, group in groupby(enumerate(order), key=lambda placed: values[placed[1]]):
        tied = list(group)
        for _, at in tied:
            ranks[at] = (tied[0][0] + tied[-1][0]) / 2 - (len(values) - 1) / 2
    return ranks
