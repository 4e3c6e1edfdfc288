"""Paper 5, Theorems 4.2 and 4.4: the excess risk of the linear classifier that a similarity defines.

p(x, y) is a discrete joint distribution of N images and N texts. The texts of class c are Y_c; a text may belong to no
class. P(c | x) are the true labels. A similarity g gives the classifier (linear in the image's features)

    h^g(x)_c = E[g(x, y) | y in Y_c] + ln P(Y_c)

and the best classifier is h*(x)_c = ln P(c | x). With L the cross-entropy over p(x, c), in nats:

    4.2   L(h^g*) - L(h*) <= E[KL_1(x)] + E[KL_2(x, c)]        g* = PMI
    4.4   L(h^g) - L(h*)  <= max KL_1 + max KL_2 + 2 Delta      |g - g*| <= Delta
          KL_1(x) = KL(P(c | x) || P(Y_c | x) / sum_i P(Y_i | x)),  KL_2(x, c) = KL(p(y | Y_c) || p(y | x, Y_c))

Theorem 4.4 bounds the risk of the best linear classifier. h^g is a linear classifier, so its risk is at least as high
and the test is stricter.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from clipx.theory.claims import Check
from clipx.theory.experiment import Array
from clipx.theory.paper5.information import pointwise_mutual_information

JOINTS = 200  # random distributions


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


def checks(p: Array, fitted: dict[str, Array], rng: np.random.Generator) -> tuple[list[Check], list[Check]]:
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
