"""Paper 5, Proposition 4.1, section 5.1 and Theorem 5.1: how close a similarity can come to the PMI.

Theorems 4.2 and 4.4 bound the excess risk of such a similarity.

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

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from clipx.config.setting import ALPHA, AT_LEAST_0, AT_LEAST_1, POSITIVE, at_least, between, each, setting
from clipx.theory.experiment import Array, Curve, Panel
from clipx.utils.figures import GREY
from clipx.verdict import Check, CheckedClaim, near

JOINTS = 200  # random distributions for Theorems 4.2 and 4.4
Similarity = Callable[[Array], tuple[Array, Callable[[Array], Array]]]  # parameters -> (g, dL/dg -> dL/dparameters)


@dataclass(frozen=True, kw_only=True)
class PmiSettings:
    """Defaults: a joint distribution with I(X; Y) of about 0.8 nats."""

    N: int = setting(16, "number of images and of texts", at_least(2))
    spread: float = setting(1.5, "p is proportional to exp(spread * normal)", between(1e-9, 50))
    d: tuple[int, ...] = setting((2, 4, 8, 15), "dimensions of the inner product", each(AT_LEAST_1))
    M: tuple[int, ...] = setting(
        (1, 2, 4, 8), "numbers of points in a set; the claim compares the extremes", each(AT_LEAST_1, different=2)
    )
    points_d: int = setting(2, "dimension of the points", AT_LEAST_1)
    alpha: tuple[float, ...] = setting((0.5, 0.5), "alpha1, alpha2", ALPHA)
    sigma: float = setting(0.75, "width of the Gaussian kernel", POSITIVE)
    starts: int = setting(3, "starts of a fit; the smallest loss counts", AT_LEAST_1)
    iterations: int = setting(500, "L-BFGS iterations per start", AT_LEAST_1)
    seed: int = setting(0, "seed of the distribution and the starts", AT_LEAST_0)


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


def pointwise_mutual_information(p: Array) -> Array:
    """Return PMI(x, y) = log(p(x, y) / (p(x) p(y))), [N, N], in nats."""
    return np.asarray(np.log(p / np.outer(p.sum(axis=1), p.sum(axis=0))))


def mutual_information(p: Array) -> float:
    """Return I(X; Y) in nats."""
    return float((p * pointwise_mutual_information(p)).sum())


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


# Theorems 4.2 and 4.4: the excess risk of the linear classifier that a similarity defines.
#
# The texts of class c are Y_c; a text may belong to no class. P(c | x) are the true labels. A similarity g gives the
# classifier (linear in the image's features)
#
#     h^g(x)_c = E[g(x, y) | y in Y_c] + ln P(Y_c)
#
# and the best classifier is h*(x)_c = ln P(c | x). With L the cross-entropy over p(x, c), in nats:
#
#     4.2   L(h^g*) - L(h*) <= E[KL_1(x)] + E[KL_2(x, c)]        g* = PMI
#     4.4   L(h^g) - L(h*)  <= max KL_1 + max KL_2 + 2 Delta      |g - g*| <= Delta
#           KL_1(x) = KL(P(c | x) || P(Y_c | x) / sum_i P(Y_i | x)),  KL_2(x, c) = KL(p(y | Y_c) || p(y | x, Y_c))
#
# Theorem 4.4 bounds the risk of the best linear classifier. h^g is a linear classifier, so its risk is at least as high
# and the test is stricter.


@dataclass(frozen=True)
class Labelling:
    """Classes of the texts and labels of the images."""

    of_text: NDArray[np.int64]  # [N], 0..K-1, or -1 for a text of no class
    p_label: Array  # [N, K], P(c | x)


def class_masses(p: Array, of_text: NDArray[np.int64], K: int) -> Array:
    """Return P(x, Y_c), [N, K]."""
    return np.column_stack([p[:, of_text == c].sum(axis=1) for c in range(K)])


def excess_risk(g: Array, p: Array, labels: Labelling) -> float:
    """Return L(h^g) - L(h*) in nats, for similarities g [N, N]."""
    K = labels.p_label.shape[1]
    mass, p_y = class_masses(p, labels.of_text, K).sum(axis=0), p.sum(axis=0)
    own = [np.average(g[:, labels.of_text == c], axis=1, weights=p_y[labels.of_text == c]) for c in range(K)]
    h = np.column_stack(own) + np.log(mass)
    log_q = h - logsumexp(h, axis=1, keepdims=True)
    joint = p.sum(axis=1, keepdims=True) * labels.p_label
    return float((joint * (np.log(labels.p_label) - log_q)).sum())


def divergences(p: Array, labels: Labelling) -> tuple[Array, Array]:
    """Return KL_1 [N] and KL_2 [N, K] in nats."""
    K = labels.p_label.shape[1]
    masses = class_masses(p, labels.of_text, K)
    by_texts = masses / masses.sum(axis=1, keepdims=True)
    first = (labels.p_label * np.log(labels.p_label / by_texts)).sum(axis=1)
    second = np.empty_like(masses)
    for c in range(K):
        inside = p[:, labels.of_text == c]
        prior = inside.sum(axis=0) / inside.sum()
        second[:, c] = (prior * np.log(prior / (inside / inside.sum(axis=1, keepdims=True)))).sum(axis=1)
    return first, second


def slack_of_4_2(p: Array, labels: Labelling) -> float:
    """Return the right side minus the left side of Theorem 4.2, in nats."""
    p_x = p.sum(axis=1)
    first, second = divergences(p, labels)
    bound = p_x @ first + (p_x[:, None] * labels.p_label * second).sum()
    return float(bound) - excess_risk(pointwise_mutual_information(p), p, labels)


def slack_of_4_4(g: Array, p: Array, labels: Labelling) -> float:
    """Return the right side minus the left side of Theorem 4.4 for similarities g [N, N], in nats."""
    error = g - pointwise_mutual_information(p)
    Delta = float(error.max() - error.min()) / 2  # the smallest Delta: any constant may be added to g*
    first, second = divergences(p, labels)
    return float(first.max() + second.max()) + 2 * Delta - excess_risk(g, p, labels)


def random_labels(p: Array, K: int, noise: float, rng: np.random.Generator) -> Labelling:
    """Draw classes with at least one text each, and labels proportional to P(Y_c | x) exp(noise * normal)."""
    of_text = np.concatenate([np.arange(K), rng.integers(-1, K, len(p) - K)])
    log_mass = np.log(class_masses(p, of_text, K))
    return Labelling(of_text, softmax(log_mass + noise * rng.standard_normal(log_mass.shape), axis=1))


def without_divergence(p: Array, K: int, rng: np.random.Generator) -> tuple[Array, Labelling]:
    """Return a joint distribution and labels for which both divergences are 0 (remark after Theorem 4.2).

    Given its class, a text is independent of x, and the labels are P(Y_c | x).
    """
    of_text = np.arange(len(p)) % K
    joint = class_masses(p, of_text, K)[:, of_text] * np.exp(rng.standard_normal(len(p)))
    joint /= joint.sum()
    masses = class_masses(joint, of_text, K)
    return joint, Labelling(of_text, masses / masses.sum(axis=1, keepdims=True))


def risk_checks(p: Array, fitted: dict[str, Array], rng: np.random.Generator) -> tuple[list[Check], list[Check]]:
    """Check both theorems on random distributions, and Theorem 4.4 on similarities g [N, N] that were fitted to p."""
    K = min(4, len(p))
    slack_2, slack_4 = [], []
    for _ in range(JOINTS):
        joint = softmax(rng.uniform(0, 2) * rng.standard_normal(p.shape))
        labels = random_labels(joint, K, rng.uniform(0, 2), rng)
        g = pointwise_mutual_information(joint) + rng.uniform(0, 2) * rng.standard_normal(p.shape)
        slack_2.append(slack_of_4_2(joint, labels))
        slack_4.append(slack_of_4_4(g, joint, labels))
    ideal, of_ideal = without_divergence(p, K, rng)
    at_zero = excess_risk(pointwise_mutual_information(ideal), ideal, of_ideal)
    labels = random_labels(p, K, 0.5, rng)
    at_optimum = [
        Check(f"bound minus excess risk, smallest of {JOINTS} random distributions", min(slack_2), low=-1e-9),
        Check("excess risk if both divergences are 0", at_zero, high=1e-9),
    ]
    near_optimum = [
        Check(f"bound minus excess risk, smallest of {JOINTS} random distributions", min(slack_4), low=-1e-9),
        *(Check(f"bound - excess risk, {name}", slack_of_4_4(g, p, labels), low=-1e-9) for name, g in fitted.items()),
    ]
    return at_optimum, near_optimum


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
        risk=risk_checks(p, fitted, rng),
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


def figure(result: PmiResult) -> list[Panel]:
    """Return the distances to the bound by size and by number of parameters, and both similarities over the PMI."""
    settings, floor = result.settings, 1e-6  # smaller distances are drawn at the floor
    families = {  # name -> excess by size, parameters per unit of size
        "inner product, dimension d": (result.inner_product, 1),
        f"M weighted points in {settings.points_d} dimensions": (result.point_sets, settings.points_d + 1),
    }
    by_size, by_parameters = (
        [
            Curve(name, np.array(list(excess)) * (unit if per_parameter else 1), heights, "o-")
            for name, (excess, unit) in families.items()
            for heights in (np.maximum(list(excess.values()), floor),)
        ]
        for per_parameter in (False, True)
    )
    values = np.array([result.pmi.min(), result.pmi.max()])
    fitted = [Curve(name, result.pmi.ravel(), g.ravel(), ".") for name, g in result.fitted.items()]
    title = f"N = {settings.N}, $I(X;Y)$ = {result.mutual_information:.3f} nats"
    above = "loss above the bound $-I(X;Y)$ (nats)"
    return [
        Panel("d or M", above, by_size, title, log="xy"),
        Panel("parameters per instance", above, by_parameters, f"lowest value drawn: {floor:g}", log="xy"),
        Panel("PMI (nats)", "similarity (nats)", [*fitted, Curve("equal", values, values, "--", GREY)]),
    ]
