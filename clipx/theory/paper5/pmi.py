"""Paper 5, Proposition 4.1, section 5.1 and Theorem 5.1: how close a similarity can come to the PMI.

Theorems 4.2 and 4.4, on the excess risk of such a similarity, are in excess_risk.py.

p(x, y) is a discrete joint distribution of N images and N texts. The population form (2) of the symmetric InfoNCE
is at least -I(X; Y), with equality for g = PMI + const (Proposition 4.1). Two similarities with free parameters:

  inner product         g = Z_X^T Z_Y, features of dimension d; rank <= d + 1 with the constant (section 5.1)
  weighted point sets   g = sum_ij w_i w_j k(v_i, v_j) (eq. 6), M points of dimension points_d in a set, with
                        k(u, v) = alpha1 <u, v> + alpha2 exp(-||u - v||^2 / (2 sigma^2))

Points are not normalised, as in Theorem 5.1 (the trained model normalises them). Each similarity is fitted by
L-BFGS from several starts; the smallest loss counts. For N > d + 1 the inner product cannot reach the bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from clipx.config.setting import POSITIVE, at_least
from clipx.theory.claims import Check, CheckedClaim, near
from clipx.theory.experiment import Array, Settings, out_of_range, require_two_values
from clipx.theory.paper5 import excess_risk
from clipx.theory.paper5.information import mutual_information, pointwise_mutual_information

Similarity = Callable[[Array], tuple[Array, Callable[[Array], Array]]]  # parameters -> (g, dL/dg -> dL/dparameters)


@dataclass(frozen=True, kw_only=True)
class PmiSettings(Settings):
    """Defaults: a joint distribution with I(X; Y) of about 0.8 nats."""

    N: Annotated[int, at_least(2)] = 16  # number of images and of texts
    spread: Annotated[float, POSITIVE] = 1.5  # p proportional to exp(spread * normal)
    d: Annotated[tuple[int, ...], at_least(1)] = (2, 4, 8, 15)  # dimensions of the inner product
    M: Annotated[tuple[int, ...], at_least(1)] = (1, 2, 4, 8)  # numbers of points in a set
    points_d: Annotated[int, at_least(1)] = 2  # dimension of the points
    alpha: Annotated[tuple[float, ...], at_least(0)] = (0.5, 0.5)  # alpha1, alpha2
    sigma: Annotated[float, POSITIVE] = 0.75
    starts: Annotated[int, at_least(1)] = 3
    iterations: Annotated[int, at_least(1)] = 500  # L-BFGS iterations per start
    seed: Annotated[int, at_least(0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.alpha) != 2 or not any(self.alpha):
            raise out_of_range("alpha", self.alpha, "two numbers of 0 or more, not both 0")
        require_two_values("M", self.M)


@dataclass(frozen=True)
class PmiResult:
    settings: PmiSettings
    mutual_information: float
    inner_product: dict[int, float]  # d -> smallest loss + I
    point_sets: dict[int, float]  # M -> smallest loss + I
    linear_points: float  # smallest loss + I of the largest M with the linear kernel alone
    pmi: Array  # [N, N]
    fitted: dict[str, Array]  # similarity -> g [N, N] at the smallest d or largest M, shifted to the mean of the PMI
    risk: tuple[list[Check], list[Check]]  # of Theorems 4.2 and 4.4


def nce(g: Array, p: Array) -> tuple[float, Array]:
    """Return the loss (2) of the similarities g [N, N], in nats, and its gradient with respect to g."""
    p_x, p_y = p.sum(axis=1, keepdims=True), p.sum(axis=0, keepdims=True)
    over_x, over_y = g + np.log(p_x), g + np.log(p_y)
    log_x, log_y = logsumexp(over_x, axis=0, keepdims=True), logsumexp(over_y, axis=1, keepdims=True)
    value = -(p * g).sum() + ((p_y * log_x).sum() + (p_x * log_y).sum()) / 2
    return float(value), -p + (p_y * np.exp(over_x - log_x) + p_x * np.exp(over_y - log_y)) / 2


def inner_product(features: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Return the similarities of features [2, N, d], and their backward pass."""
    x, y = features
    return x @ y.T, lambda by_g: np.stack([by_g @ y, by_g.T @ x])


def point_sets(alpha: tuple[float, ...], sigma: float) -> Similarity:
    """Return the similarity of sets [2, N, M, 1 + dimension]; each entry is a weight and a point."""

    def similarity(sets: Array) -> tuple[Array, Callable[[Array], Array]]:
        _, N, M, width = sets.shape
        w, v = sets[..., 0].reshape(2, N * M), sets[..., 1:].reshape(2, N * M, width - 1)
        dots = v[0] @ v[1].T
        squares = np.square(v).sum(axis=-1)
        bell = alpha[1] * np.exp(-(squares[0][:, None] + squares[1] - 2 * dots) / (2 * sigma**2))
        kernel = alpha[0] * dots + bell
        weighted = w[0][:, None] * kernel * w[1]

        def backward(by_g: Array) -> Array:
            by_pair = np.repeat(np.repeat(by_g, M, axis=0), M, axis=1)
            by_w = np.stack([(by_pair * kernel) @ w[1], (by_pair * kernel).T @ w[0]])
            by_kernel = by_pair * np.outer(*w)
            pull = by_kernel * bell / sigma**2
            linear = alpha[0] * by_kernel + pull
            by_x = linear @ v[1] - pull.sum(axis=1)[:, None] * v[0]
            by_y = linear.T @ v[0] - pull.sum(axis=0)[:, None] * v[1]
            by_v = np.stack([by_x, by_y])
            return np.concatenate([by_w[..., None], by_v], axis=-1).reshape(sets.shape)

        return weighted.reshape(N, M, N, M).sum(axis=(1, 3)), backward

    return similarity


def fit(
    similarity: Similarity, shape: tuple[int, ...], p: Array, settings: PmiSettings, rng: np.random.Generator
) -> tuple[float, Array]:
    """Return the smallest loss over the starts and its g."""

    def loss(flat: Array) -> tuple[float, Array]:
        g, backward = similarity(flat.reshape(shape))
        value, by_g = nce(g, p)
        return value, backward(by_g).ravel()

    options = {"maxiter": settings.iterations, "maxfun": 2 * settings.iterations, "ftol": 1e-13, "gtol": 1e-9}
    found = [
        minimize(loss, rng.standard_normal(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
        for _ in range(settings.starts)
    ]
    best = min(found, key=lambda f: float(f.fun))
    return float(best.fun), similarity(best.x.reshape(shape))[0]


def solve(settings: PmiSettings) -> PmiResult:
    """Fit the inner product for every d and the point sets for every M."""
    rng = np.random.default_rng(settings.seed)
    N = settings.N
    p = np.exp(settings.spread * rng.standard_normal((N, N)))
    p /= p.sum()
    pmi, information = pointwise_mutual_information(p), mutual_information(p)
    inner = {d: fit(inner_product, (2, N, d), p, settings, rng) for d in settings.d}
    kernel = point_sets(settings.alpha, settings.sigma)
    sets = {M: fit(kernel, (2, N, M, 1 + settings.points_d), p, settings, rng) for M in settings.M}
    largest = max(sets)
    linear = fit(point_sets((1.0, 0.0), settings.sigma), (2, N, largest, 1 + settings.points_d), p, settings, rng)[0]
    fitted = {"inner product": inner[min(inner)][1], "weighted point sets": sets[largest][1]}
    return PmiResult(
        settings=settings,
        mutual_information=information,
        inner_product={d: loss + information for d, (loss, _) in inner.items()},
        point_sets={M: loss + information for M, (loss, _) in sets.items()},
        linear_points=linear + information,
        pmi=pmi,
        risk=excess_risk.checks(p, fitted, rng),
        fitted={name: g - float((p * (g - pmi)).sum()) for name, g in fitted.items()},
    )


def claims(result: PmiResult) -> list[CheckedClaim]:
    """Check claims 5.6, 5.9 and 5.10."""
    settings = result.settings
    few, many = min(result.point_sets), max(result.point_sets)
    most = result.point_sets[many]
    same = result.inner_product.get(settings.points_d, result.inner_product[min(result.inner_product)])
    lowest = min([*result.inner_product.values(), *result.point_sets.values()])
    checks = [
        Check("smallest loss + I(X; Y) (Proposition 4.1)", lowest, low=-1e-9),
        *(
            Check(f"inner product, d={d}: (loss + I) / I", excess / result.mutual_information, low=0.01)
            for d, excess in result.inner_product.items()
            if d + 1 < settings.N
        ),
        Check(f"loss + I: point sets with M={many} / M={few}", most / result.point_sets[few], high=0.1),
        Check(f"loss + I: point sets with M={many} / inner product", most / same, high=0.1),
    ]
    if settings.points_d in result.inner_product:
        # control: sum_ij w_i w_j <v_i, v_j> is an inner product, so points alone do not help. The tolerance is 10%,
        # because fits may end in local minima.
        ratio = result.linear_points / same
        checks.append(near(f"loss + I: M={many} points with the linear kernel / inner product", ratio, 1.0, 0.1))
    statement = (
        "The symmetric InfoNCE is at least -I(X; Y); the inner product of dimension d < N - 1 stays above this bound, "
        "weighted point sets approach it as they grow (Proposition 4.1, section 5.1, Theorem 5.1)"
    )
    at_optimum, near_optimum = result.risk
    return [
        CheckedClaim("5.6", statement, checks),
        CheckedClaim(
            "5.9",
            "With the PMI as similarity, the excess risk of the texts' linear classifier is at most the sum of two "
            "divergences (Theorem 4.2)",
            at_optimum,
        ),
        CheckedClaim("5.10", "A similarity within Delta of the PMI adds at most 2 Delta (Theorem 4.4)", near_optimum),
    ]
