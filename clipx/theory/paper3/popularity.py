"""NUCLR's popularity, non-parametrically (paper 3, section 2.2 and appendix B).

o is uniform on the upper unit half-disc, a in the unit square has p(a | o) ~ exp(e(o, a) / tau) with
e(o, a) = <o, a>: a product of two truncated exponentials, sampled exactly. The popularity of a_j is
q_j = sum_j' p(a_j | o_j'); the optimum of (5) estimates it by exp(zeta_j / tau) up to a constant Z.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clipx.config.setting import AT_LEAST_0, POSITIVE, Rule
from clipx.theory.claims import Check, CheckedClaim
from clipx.theory.experiment import Settings, two_or_more
from clipx.theory.paper1.case_study import Array

METHODS = ("global contrastive loss", "NUCLR's q", "maximum likelihood")


@dataclass(frozen=True, kw_only=True)
class PopularitySettings(Settings):
    """Defaults: the paper's problem."""

    tau: float = 0.2
    n: tuple[int, ...] = (100, 200, 400, 800, 1600)  # pairs
    seeds: int = 8  # independent draws of the pairs
    sweeps: int = 40  # of the fixed point at most; it stops at 1e-14
    seed: int = 0  # the first one

    RULES: ClassVar[Mapping[str, Rule]] = {
        "tau": (lambda v: 0.02 <= v < np.inf, "0.02 or more (exp(e / tau) must not overflow)"),
        "n": (lambda v: 2 <= v <= 20000, "2..20000 (the similarities are an n x n matrix)"),
        "seeds": (lambda v: v >= 2, "2 or more (the interval needs two)"),
        "sweeps": POSITIVE,
        "seed": AT_LEAST_0,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        two_or_more("n", self.n)


@dataclass(frozen=True)
class Sample:
    """One draw of n pairs, solved."""

    o: Array  # [n, 2]
    a: Array  # [n, 2]
    q: Array  # [n], the true popularity
    q_estimated: Array  # [n], scaled to the same maximum
    residual: Array  # [sweeps], largest relative change of exp(zeta / tau)
    correlation: float
    error: dict[str, float]  # method -> |empirical risk - true risk|
    term: dict[str, float]  # method -> E(q~, q) of Theorem 2


@dataclass(frozen=True)
class PopularityResult:
    settings: PopularitySettings
    samples: dict[int, list[Sample]]  # n -> one a seed
    risk: float  # the true one


def draw(n: int, tau: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """n pairs (o, a), each [n, 2], by inverse distribution functions."""
    angle, radius = np.pi * rng.random(n), np.sqrt(rng.random(n))
    o = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    rate = o / tau
    a = np.log1p(rng.random((n, 2)) * np.expm1(rate)) / rate
    return o, a


def partition(o: Array, tau: float) -> Array:
    """The integral of exp(<o, a> / tau) over the unit square [n]."""
    rate = o / tau
    return np.asarray((np.expm1(rate) / rate).prod(axis=1))


def true_risk(tau: float, order: int = 200) -> float:
    """E[-tau log p(a | o)], by Gauss-Legendre quadrature over the half-disc."""
    t, weight = np.polynomial.legendre.leggauss(order)
    angle, radius = np.meshgrid(np.pi * (t + 1) / 2, (t + 1) / 2)
    density = np.outer(weight, weight) * radius  # uniform on the disc; normalised below
    o = np.column_stack([(radius * np.cos(angle)).ravel(), (radius * np.sin(angle)).ravel()])
    rate = o / tau
    mean_a = 1 / -np.expm1(-rate) - 1 / rate  # of the truncated exponentials
    per_o = -(o * mean_a).sum(axis=1) + tau * np.log(partition(o, tau))
    return float(density.ravel() @ per_o / density.sum())


def fixed_point(kernel: Array, sweeps: int) -> tuple[Array, Array]:
    """exp(zeta / tau) [n] that solves (6), with mean 1, and the relative changes on the way.

    `kernel` is exp(e(o_i, a_j) / tau). Rows and columns are scaled in turn, as in Sinkhorn's algorithm.
    """
    q, residual = np.ones(len(kernel)), []
    for _ in range(sweeps):
        new = kernel.T @ (1 / (kernel @ (1 / q)))
        new /= new.mean()
        residual.append(float(np.abs(new / q - 1).max()))
        q = new
        if residual[-1] < 1e-14:
            break
    return q, np.array(residual)


def solve_sample(n: int, tau: float, sweeps: int, risk: float, rng: np.random.Generator) -> Sample:
    """Popularity and the three empirical risks (3) of one draw."""
    o, a = draw(n, tau, rng)
    e = o @ a.T
    kernel, own = np.exp(e / tau), np.diagonal(e)
    Z = partition(o, tau)
    q = (kernel / Z[:, None]).sum(axis=0)
    scaled, residual = fixed_point(kernel, sweeps)
    estimate = scaled * q.max() / scaled.max()
    uniform = np.full(n, float(n))  # n / mu(A)
    integrals = dict(zip(METHODS, (kernel @ (1 / uniform), kernel @ (1 / estimate), Z), strict=True))
    largest = np.exp((own - np.sqrt(2)) / tau).mean()  # c = sqrt(2) bounds e
    return Sample(
        o=o,
        a=a,
        q=q,
        q_estimated=estimate,
        residual=residual,
        correlation=float(np.corrcoef(q, estimate)[0, 1]),
        error={name: abs(float((tau * np.log(g) - own).mean()) - risk) for name, g in integrals.items()},
        term={
            name: float(largest * np.abs(1 / guess - 1 / q).sum())
            for name, guess in zip(METHODS[:2], (uniform, estimate), strict=True)
        },
    )


def solve(settings: PopularitySettings) -> PopularityResult:
    """Every n with every seed."""
    risk = true_risk(settings.tau)
    samples = {
        n: [
            solve_sample(n, settings.tau, settings.sweeps, risk, np.random.default_rng((settings.seed + s, n)))
            for s in range(settings.seeds)
        ]
        for n in settings.n
    }
    return PopularityResult(settings, samples, risk)


def mean_error(samples: list[Sample], method: str) -> tuple[float, float]:
    """Mean error over the draws and half the width of its 95% interval."""
    return mean_interval([sample.error[method] for sample in samples])


def mean_interval(values: list[float]) -> tuple[float, float]:
    """Mean and half the width of its 95% interval (normal)."""
    return float(np.mean(values)), float(1.96 * np.std(values, ddof=1) / np.sqrt(len(values)))


def claims(result: PopularityResult) -> list[CheckedClaim]:
    """3.3 and 3.4 of the project's list."""
    n_low, n_high = min(result.samples), max(result.samples)
    recovered = []
    for n, drawn in result.samples.items():
        mean, error = mean_interval([s.correlation for s in drawn])
        recovered.append(Check(f"correlation of estimated and true q, n={n}", mean, low=0.99, error=error))
    last = max(s.residual[-1] for drawn in result.samples.values() for s in drawn)
    recovered.append(Check("relative change of the last sweep", last, high=1e-12))
    few, many = ({m: mean_error(result.samples[n], m) for m in METHODS} for n in (n_low, n_high))
    gcl, ours, likelihood = METHODS
    remains = [
        Check(f"{gcl}: error, n={n_high} over n={n_low}", *_ratio(many[gcl], few[gcl], low=0.5)),
        Check(f"{ours}: error at n={n_high}, share of the {gcl}'s", *_ratio(many[ours], many[gcl], high=1 / 3)),
        Check(f"{ours}: error at n={n_high}, times {likelihood}'s", *_ratio(many[ours], many[likelihood], high=3.0)),
    ]
    return [
        CheckedClaim(
            "3.3", "The optimum of (5) recovers the popularity q up to a constant (Theorem 1, Figure 2)", recovered
        ),
        CheckedClaim(
            "3.4",
            "The global contrastive loss keeps an error that does not vanish with n; the method nearly matches maximum "
            "likelihood (Theorem 2, Figure 2)",
            remains,
        ),
    ]


def _ratio(
    above: tuple[float, float], below: tuple[float, float], low: float = -np.inf, high: float = np.inf
) -> tuple[float, float, float, float]:
    """Quotient of two means, bounds, and half the width of its interval (first order)."""
    quotient = above[0] / below[0]
    return quotient, low, high, quotient * float(np.hypot(above[1] / above[0], below[1] / below[0]))
