"""Paper 3, Theorems 1 and 2 (section 2.2, appendices B and C, Figure 2): non-parametric estimates of the popularity.

o is uniform on the upper unit half-disc; a is in the unit square, and p(a | o) is proportional to exp(e(o, a) / tau)
with e(o, a) = <o, a>. This density is a product of two truncated exponentials and is sampled exactly. The popularity of
a_j is q_j = sum_i p(a_j | o_i); the optimum of eq. (5) estimates it by exp(zeta_j / tau), up to a constant factor.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from clipx.config.setting import AT_LEAST_0, AT_LEAST_1, Rule, each, setting
from clipx.theory.experiment import Array, Curve, Panel
from clipx.utils.figures import GREY
from clipx.verdict import Check, CheckedClaim, half_width

TAU: Rule = (lambda v: 0.02 <= v < np.inf, "0.02 or more (exp(e / tau) must not overflow)")
N: Rule = (lambda v: 3 <= v <= 20000, "3..20000 (the similarities are an n x n matrix)")
SEEDS: Rule = (lambda v: v >= 2, "2 or more (the confidence interval needs two)")
METHODS = ("global contrastive loss", "NUCLR's q", "maximum likelihood")


@dataclass(frozen=True, kw_only=True)
class PopularitySettings:
    """Defaults: the paper's problem."""

    tau: float = setting(0.2, "temperature", TAU)
    n: tuple[int, ...] = setting(
        (100, 200, 400, 800, 1600), "numbers of pairs; the claims compare the extremes", each(N, different=2)
    )
    seeds: int = setting(8, "independent draws of the pairs for each n", SEEDS)
    sweeps: int = setting(40, "largest number; fewer if the relative change falls below 1e-14", AT_LEAST_1)
    seed: int = setting(0, "random seed of the first draw", AT_LEAST_0)


@dataclass(frozen=True)
class Sample:
    """One draw of n pairs with its estimates."""

    o: Array  # [n, 2]
    a: Array  # [n, 2]
    q: Array  # [n], true popularity
    q_estimated: Array  # [n], scaled to the maximum of q
    residual: Array  # [sweeps], largest relative change of exp(zeta / tau) in each sweep
    correlation: float
    error: dict[str, float]  # method -> |empirical risk - true risk|
    term: dict[str, float]  # method -> E(q~, q) of Theorem 2


@dataclass(frozen=True)
class PopularityResult:
    settings: PopularitySettings
    samples: dict[int, list[Sample]]  # n -> one sample per seed


def sample_pairs(n: int, tau: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw n pairs (o, a), each [n, 2], by inverse distribution functions."""
    angle, radius = np.pi * rng.random(n), np.sqrt(rng.random(n))
    o = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    rate = o / tau
    a = np.log1p(rng.random((n, 2)) * np.expm1(rate)) / rate
    return o, a


def partition(o: Array, tau: float) -> Array:
    """Return the integral of exp(<o, a> / tau) over all a in the unit square, [n] for o [n, 2]."""
    rate = o / tau
    return np.asarray((np.expm1(rate) / rate).prod(axis=1))


def true_risk(tau: float) -> float:
    """Compute E[-tau log p(a | o)] by Gauss-Legendre quadrature over the half-disc."""
    t, weight = np.polynomial.legendre.leggauss(200)
    angle, radius = np.meshgrid(np.pi * (t + 1) / 2, (t + 1) / 2)
    density = np.outer(weight, weight) * radius  # uniform on the half-disc; normalised below
    o = np.column_stack([(radius * np.cos(angle)).ravel(), (radius * np.sin(angle)).ravel()])
    rate = o / tau
    mean_a = 1 / -np.expm1(-rate) - 1 / rate  # mean of the truncated exponentials
    per_o = -(o * mean_a).sum(axis=1) + tau * np.log(partition(o, tau))
    return float(density.ravel() @ per_o / density.sum())


def fixed_point(kernel: Array, sweeps: int) -> tuple[Array, Array]:
    """Return exp(zeta / tau) [n] that solves (6), scaled to mean 1, and the relative change of each sweep.

    `kernel` [n, n] is exp(e(o_i, a_j) / tau). Rows and columns are scaled in turn, as in Sinkhorn's algorithm.
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
    """Draw n pairs; estimate the popularity and the three empirical risks (3)."""
    o, a = sample_pairs(n, tau, rng)
    e = o @ a.T
    kernel, own = np.exp(e / tau), np.diagonal(e)
    Z = partition(o, tau)
    q = (kernel / Z[:, None]).sum(axis=0)
    scaled, residual = fixed_point(kernel, sweeps)
    estimate = scaled * q.max() / scaled.max()
    guesses = {METHODS[0]: np.full(n, float(n)), METHODS[1]: estimate}  # first: n / mu(A), area mu(A) = 1
    integrals = {name: kernel @ (1 / guess) for name, guess in guesses.items()} | {METHODS[2]: Z}
    factor = np.exp((own - np.sqrt(2)) / tau).mean()  # of E(q~, q); c = sqrt(2) bounds e
    return Sample(
        o=o,
        a=a,
        q=q,
        q_estimated=estimate,
        residual=residual,
        correlation=float(np.corrcoef(q, estimate)[0, 1]),
        error={name: abs(float((tau * np.log(g) - own).mean()) - risk) for name, g in integrals.items()},
        term={name: float(factor * np.abs(1 / guess - 1 / q).sum()) for name, guess in guesses.items()},
    )


def solve(settings: PopularitySettings) -> PopularityResult:
    """Draw and solve the samples for every n and seed."""
    risk = true_risk(settings.tau)
    samples: dict[int, list[Sample]] = {n: [] for n in settings.n}
    for n, seed in product(samples, range(settings.seed, settings.seed + settings.seeds)):
        rng = np.random.default_rng((seed, n))
        samples[n].append(solve_sample(n, settings.tau, settings.sweeps, risk, rng))
    return PopularityResult(settings, samples)


def _mean(values: list[float]) -> tuple[float, float]:
    """Return the mean and the half-width of its 95% confidence interval."""
    return float(np.mean(values)), float(half_width(values))


def claims(result: PopularityResult) -> list[CheckedClaim]:
    """Check claims 3.3, 3.4 and 3.12."""
    n_low, n_high = min(result.samples), max(result.samples)
    recovered = []
    for n, samples in result.samples.items():
        mean, width = _mean([sample.correlation for sample in samples])
        recovered.append(Check(f"correlation of estimated and true q, n={n}", mean, low=0.99, error=width))
    last = max(s.residual[-1] for samples in result.samples.values() for s in samples)
    recovered.append(Check("relative change in the last sweep", last, high=1e-12))
    few, many = ({m: _mean([s.error[m] for s in result.samples[n]]) for m in METHODS} for n in (n_low, n_high))
    gcl, ours, likelihood = METHODS
    remains = [
        _ratio(f"{gcl}: error at n={n_high} / error at n={n_low}", many[gcl], few[gcl], low=0.5),
        _ratio(f"n={n_high}: error of {ours} / {gcl}", many[ours], many[gcl], high=1 / 3),
        _ratio(f"n={n_high}: error of {ours} / {likelihood}", many[ours], many[likelihood], high=3.0),
    ]
    early, late = ({m: _mean([s.term[m] for s in result.samples[n]]) for m in METHODS[:2]} for n in (n_low, n_high))
    # a term counts as vanishing if it is less than half as large at the largest n as at the smallest, as in 3.4
    terms = [
        _ratio(f"{gcl}: error term at n={n_high} / at n={n_low}", late[gcl], early[gcl], low=0.5),
        _ratio(f"{ours}: error term at n={n_high} / at n={n_low}", late[ours], early[ours], high=0.5),
        _ratio(f"n={n_high}: error term of {ours} / {gcl}", late[ours], late[gcl], high=1 / 3),
    ]
    return [
        CheckedClaim("3.3", "The optimum of (5) recovers q up to a constant (Theorem 1, Figure 2)", recovered),
        CheckedClaim(
            "3.4",
            "The error of the global contrastive loss does not vanish with n; NUCLR nearly matches maximum likelihood "
            "(Theorem 2, Figure 2)",
            remains,
        ),
        CheckedClaim(
            "3.12",
            "The error term E(q~, q) of Theorem 2 does not vanish with n for the global contrastive loss (Remark 4), "
            "and does for NUCLR's q",
            terms,
        ),
    ]


def _ratio(
    name: str, above: tuple[float, float], below: tuple[float, float], low: float = -np.inf, high: float = np.inf
) -> Check:
    """Check the quotient of two means with half-widths; its own half-width is a first-order approximation."""
    quotient, relative = above[0] / below[0], float(np.hypot(above[1] / above[0], below[1] / below[0]))
    return Check(name, quotient, low, high, quotient * relative)


def figure(result: PopularityResult) -> list[Panel]:
    """Return true and estimated popularity of one sample of the smallest n, and errors and error terms against n."""
    sample, sizes = result.samples[min(result.samples)][0], np.array(list(result.samples))
    top = np.array([0.0, 1.05 * max(sample.q.max(), sample.q_estimated.max())])
    errors = []
    for method in METHODS:
        means, widths = np.array([_mean([s.error[method] for s in result.samples[n]]) for n in sizes]).T
        errors.append(Curve(method, sizes, means, "o-", error=widths))
    terms = [
        Curve(method, sizes, np.array([np.mean([s.term[method] for s in result.samples[n]]) for n in sizes]), "o-")
        for method in METHODS[:2]
    ]
    return [
        Panel(
            "true $q$",
            r"estimated $\tilde{q}$",
            [Curve("texts", sample.q, sample.q_estimated, "."), Curve("equal", top, top, "--", GREY)],
            f"{len(sample.q)} texts, correlation {sample.correlation:.4f}",
        ),
        Panel("pairs n", r"$|\hat{L} - L|$ (mean, 95% interval)", errors, f"{result.settings.seeds} draws", log="xy"),
        Panel("pairs n", r"error term $E(\tilde{q}, q)$ of Theorem 2", terms, log="xy"),
    ]
