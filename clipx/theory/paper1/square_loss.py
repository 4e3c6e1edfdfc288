"""Paper 1, Theorem 5.6 and Corollary 5.7: the exact zero-shot error of the square loss.

Here x = z and y = [z; zeta], where zeta is e_1 with probability 1/3 and e_2 with probability 2/3. The Bayes optimum of
E||g(x) - y||^2 is g(x) = [z; E zeta] = [z; 1/3; 2/3]. g(x) is scored against K prompts y_k ~ D(y | v_k) by inner
product, cosine and L2 distance; the error is summed over all 2^K draws of the prompts' zeta.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
from scipy.spatial.distance import cdist

from clipx.theory.experiment import Array
from clipx.theory.paper1.case_study import SyntheticPairs, descend

P_ZETA = np.array([1 / 3, 2 / 3])
Score = Callable[[Array, Array], Array]  # g [K, D], prompts y [P, D] -> [K, P], higher is closer
SCORES: dict[str, Score] = {
    "inner product": lambda g, y: g @ y.T,
    "cosine": lambda g, y: -cdist(g, y, "cosine"),
    "L2": lambda g, y: -cdist(g, y),
}


def texts(v: Array) -> Array:
    """Return all texts [v_k; zeta], [K, 2, D + 2], for classes v [K, D]."""
    K = len(v)
    return np.concatenate([np.repeat(v[:, None], 2, axis=1), np.tile(np.eye(2), (K, 1, 1))], axis=-1)


def bayes_optimum(v: Array) -> Array:
    """Return g(x) for each class z, [K, D + 2]."""
    return np.column_stack([v, np.tile(P_ZETA, (len(v), 1))])


def top1_error(g: Array, v: Array, score: Score) -> float:
    """Return the probability that a wrong prompt scores at least as high as the correct one (ties are errors)."""
    K, y = len(v), texts(v)
    s = score(g, y.reshape(2 * K, -1)).reshape(K, K, 2)  # image class, prompt class, zeta
    error = 0.0
    for zeta in product((0, 1), repeat=K):
        drawn = s[:, np.arange(K), zeta]
        own = np.diagonal(drawn).copy()
        np.fill_diagonal(drawn, -np.inf)
        error += float(P_ZETA[list(zeta)].prod() * (drawn.max(axis=1) >= own - 1e-12).mean())
    return error


def clip_embedding(v: Array, tau: float, steps: int) -> Array:
    """Return W x for each class z after gradient descent on the CLIP loss of the same pairs, [K, D + 2]."""
    K, y = len(v), texts(v)
    z, zeta = np.repeat(np.arange(K), 3), np.tile([0, 1, 1], K)  # e_2 twice, for probability 2/3
    sizes = np.full((steps, 1), 0.2 * tau**2)
    W = descend(SyntheticPairs(v[z], y[z, zeta], z), np.array([tau]), np.zeros(1), sizes).W[0]
    return np.asarray(v @ W.T)
