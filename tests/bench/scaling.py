"""Coverage of the intervals of `clipx report scaling` on simulated ladders with known laws.

    python -m tests.bench.scaling [experiments]      default: 500 per case, about five minutes

Each experiment draws the errors of two arms, whose runs of one seed share a part of the noise. The law of an arm is
error = a (x + b)^c + d. The table shows how often the 95% intervals of a, b, c, d (of the first arm) and of the
crossover contain the truth, how often the interval that the smaller points predict for the largest point contains that
point's simulated mean, and how often the fit of the first arm's law reports a problem. The last line shows how often
the interval of c from a percentile bootstrap over the seeds contains the truth.
"""

import sys
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from evaluation.analyses.power_law import Array, crossover, fit_power_law, prediction

X: Array = np.geomspace(2500.0, 2500.0 * 4**5, 6).round()


@dataclass(frozen=True)
class Case:
    """A simulated ladder.

    Args:
        noise: standard deviation over the seeds at each point.
        shared: share of the variance that the arms have in common.
    """

    name: str
    laws: tuple[tuple[float, float, float, float], tuple[float, float, float, float]]  # a, b, c, d of two arms
    noise: Array
    seeds: int = 8
    shared: float = 0.5
    x: Array = field(default_factory=lambda: X)


LAWS = ((6.0, 2000.0, -0.25, 0.15), (2.6, 1000.0, -0.16, 0.10))  # cross at 31,800
CASES = (
    Case("noise 0.005", LAWS, np.full(6, 0.005)),
    Case("noise 0.01", LAWS, np.full(6, 0.01)),
    Case("noise falls from 0.015 to 0.003", LAWS, np.linspace(0.015, 0.003, 6)),
    Case("five points", LAWS, np.full(5, 0.005), x=X[:5]),
    Case("four points, b = 0", tuple((a, 0.0, c, d) for a, _, c, d in LAWS), np.full(4, 0.01), x=X[1:5]),  # type: ignore[arg-type]
    Case("four points", LAWS, np.full(4, 0.01), x=X[1:5]),
    Case("d = 0", tuple((a, b, c, 0.0) for a, b, c, _ in LAWS), np.full(6, 0.005)),  # type: ignore[arg-type]
    Case("three seeds", LAWS, np.full(6, 0.005), seeds=3),
)


def truth(law: tuple[float, float, float, float], x: Array) -> Array:
    """Return the errors of a law."""
    a, b, c, d = law
    return a * (x + b) ** c + d


def crossing(case: Case) -> float:
    """Return the largest scale at which the two laws cross."""
    x = np.geomspace(case.x[0], 4 * case.x[-1], 200_001)
    gap = truth(case.laws[0], x) - truth(case.laws[1], x)
    return float(x[np.flatnonzero(np.diff(np.sign(gap)))[-1]])


def experiment(case: Case, draw: np.random.Generator) -> tuple[Array, Array]:
    """Return the errors [seeds, K] of both arms."""
    shape = (case.seeds, len(case.x))
    common = draw.standard_normal(shape) * np.sqrt(case.shared)
    own = [draw.standard_normal(shape) * np.sqrt(1 - case.shared) for _ in case.laws]
    first, second = (truth(law, case.x) + case.noise * (common + one) for law, one in zip(case.laws, own, strict=True))
    return first, second


def coverage(case: Case, experiments: int, seed: int = 0) -> dict[str, float]:
    """Return name -> share of experiments in which the interval contains the truth; problem -> share with a problem."""
    draw, hits, at = np.random.default_rng(seed), Counter[str](), crossing(case)
    a, b, c, d = case.laws[0]
    for _ in range(experiments):
        first, second = experiment(case, draw)
        law, other = fit_power_law(case.x, first), fit_power_law(case.x, second)
        for name, interval, value in (("a", law.a, a), ("b", law.b, b), ("c", law.c, c), ("d", law.d, d)):
            hits[name] += interval.contains(value)
        found = crossover(law, other)
        hits["crossover"] += found is not None and found.contains(at)
        smaller = fit_power_law(case.x[:-1], first[:, :-1])
        hits["prediction"] += prediction(smaller, float(case.x[-1]), first[:, -1]).contains(float(first[:, -1].mean()))
        hits["problem"] += bool(law.problem)
    return {name: count / experiments for name, count in hits.items()}


def bootstrap_coverage(case: Case, experiments: int, draws: int = 100) -> float:
    """Return how often the interval of a percentile bootstrap over the seeds contains the true c."""
    draw, hits = np.random.default_rng(1), 0
    for _ in range(experiments):
        errors, _ = experiment(case, draw)
        resampled = [errors[draw.integers(0, case.seeds, case.seeds)] for _ in range(draws)]
        low, high = np.quantile([fit_power_law(case.x, one).c.value for one in resampled], [0.025, 0.975])
        hits += low <= case.laws[0][2] <= high
    return hits / experiments


def main() -> None:
    """Print a Markdown table."""
    experiments = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    names = ("a", "b", "c", "d", "crossover", "prediction", "problem")
    print(f"| case | {' | '.join(names)} |\n|---{'|---' * len(names)}|")
    for case in CASES:
        found = coverage(case, experiments)
        print(f"| {case.name} | {' | '.join(f'{100 * found[name]:.1f}%' for name in names)} |", flush=True)
    share = bootstrap_coverage(CASES[1], experiments // 5)
    print(f"\nc by a percentile bootstrap, {CASES[1].name}: {100 * share:.1f}% of {experiments // 5}")


if __name__ == "__main__":
    main()
