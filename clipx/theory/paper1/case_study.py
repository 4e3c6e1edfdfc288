"""Paper 1, Definition 5.3: the case study, and gradient descent on its CLIP loss.

The shared feature z is uniform on K unit vectors whose largest inner product is 1 - gamma; x = G [z; xi] and
y = H [z; zeta] with unique features xi and zeta. The score is f(x, y) = <W x, y>; only W is trained (locked text
tuning), and G = H = I here. Every possible pair is listed once, so means over the list are population values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from clipx.theory.experiment import Array


@dataclass(frozen=True)
class SyntheticPairs:
    """Images, texts and the index of their shared feature."""

    x: Array  # [n, d1]
    y: Array  # [n, d2]
    z: NDArray[np.int64]  # [n]


@dataclass(frozen=True)
class Descent:
    """Gradient descent for R values of (tau, lambda) at once; T recorded steps."""

    steps: NDArray[np.int64]  # [T], number of steps taken
    time: Array  # [T, R], sum of the step sizes
    margin: Array  # [T, R]
    W: Array  # [R, d2, d1] after the last step


def equiangular(K: int, gamma: float) -> Array:
    """Return K unit vectors as rows [K, K], all inner products 1 - gamma (gamma <= K / (K - 1))."""
    gram = np.full((K, K), 1 - gamma) + gamma * np.eye(K)
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((vectors * np.sqrt(values.clip(min=0))) @ vectors.T)


def one_close_pair(K: int, gamma: float) -> Array:
    """Return K unit vectors as rows [K, K], orthogonal except the first two, whose inner product is 1 - gamma."""
    v = np.eye(K)
    v[1, 0], v[1, 1] = 1 - gamma, np.sqrt(1 - (1 - gamma) ** 2)
    return v


def with_unique_features(v: Array, xi: float, zeta: float) -> SyntheticPairs:
    """Return x = [z; +-xi], y = [z; +-zeta] with all four sign combinations of each z; x = y = z if both are 0."""
    if xi == 0 and zeta == 0:
        return SyntheticPairs(v, v, np.arange(len(v)))
    z = np.repeat(np.arange(len(v)), 4)
    sign_x, sign_y = np.tile([-1.0, -1.0, 1.0, 1.0], len(v)), np.tile([-1.0, 1.0, -1.0, 1.0], len(v))
    return SyntheticPairs(np.column_stack([v[z], xi * sign_x]), np.column_stack([v[z], zeta * sign_y]), z)


def scores(W: Array, pairs: SyntheticPairs) -> Array:
    """Return f(x_i, y_j), [..., n, n], for W [..., d2, d1]."""
    return np.asarray(pairs.x @ np.swapaxes(W, -1, -2) @ pairs.y.T)


def margin(W: Array, pairs: SyntheticPairs) -> Array:
    """Return the smallest f(x_i, y_i) - f(x_i, y_j) over all i, j with z_j != z_i, [...] for W [..., d2, d1]."""
    f = scores(W, pairs)
    own = np.diagonal(f, axis1=-2, axis2=-1)[..., :, None]
    return np.asarray((own - f)[..., pairs.z[:, None] != pairs.z].min(axis=-1))


def gradient(W: Array, pairs: SyntheticPairs, tau: Array, lam: Array) -> Array:
    """Gradient with respect to W [R, d2, d1] of L + lambda E||W x - y||^2 (Theorem G.1); tau, lam [R].

    L is the CLIP loss (3.1), the sum of both directions.
    """
    n = len(pairs.z)
    logits = scores(W, pairs) / tau[:, None, None]
    by_score = (softmax(logits, -1) + softmax(logits, -2) - 2 * np.eye(n)) / n / tau[:, None, None]
    contrast = pairs.y.T @ np.swapaxes(by_score, -1, -2) @ pairs.x
    residual = pairs.x @ np.swapaxes(W, -1, -2) - pairs.y
    return np.asarray(contrast + 2 * lam[:, None, None] / n * (np.swapaxes(residual, -1, -2) @ pairs.x))


def descend(pairs: SyntheticPairs, tau: Array, lam: Array, sizes: Array, record: Sequence[int] = ()) -> Descent:
    """Full-batch gradient descent from W = 0 with step sizes [steps, R].

    Time and margin are recorded after the step numbers in `record`, and always after the last step.
    """
    W = np.zeros((len(tau), pairs.y.shape[1], pairs.x.shape[1]))
    wanted, recorded, time = set(record), [], np.zeros(len(tau))
    for step, size in enumerate(sizes, 1):
        W = W - size[:, None, None] * gradient(W, pairs, tau, lam)
        time = time + size
        if step in wanted or step == len(sizes):
            recorded.append((step, time, margin(W, pairs)))
    steps, times, margins = zip(*recorded, strict=True)
    return Descent(np.array(steps), np.array(times), np.array(margins), W)


def minimiser(pairs: SyntheticPairs, tau: float, lam: float) -> Array:
    """Return W [d2, d1] at the minimum of the regularised loss, which is strongly convex for lambda > 0."""
    shape = (pairs.y.shape[1], pairs.x.shape[1])

    def loss(flat: Array) -> tuple[float, Array]:
        W = flat.reshape(shape)
        logits = scores(W, pairs) / tau
        own = 2 * np.trace(logits)
        contrast = (logsumexp(logits, axis=0).sum() + logsumexp(logits, axis=1).sum() - own) / len(logits)
        positive = lam * np.square(pairs.x @ W.T - pairs.y).sum(axis=1).mean()
        slope = gradient(W[None], pairs, np.array([tau]), np.array([lam]))[0]
        return float(contrast + positive), slope.ravel()

    found = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 3000, "ftol": 0.0})
    return np.asarray(found.x).reshape(shape)
