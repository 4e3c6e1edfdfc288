"""Paper 1, Theorem A.1: how far alpha-hat_gamma, which ignores classes, is from alpha_gamma.

    alpha_gamma      = P(z != z', f(x, y) - f(x, y') <= gamma) + P(z != z', f(x, y) - f(x', y) <= gamma)     (A.1)
    alpha-hat_gamma  = the same without the condition z != z'                                                 (A.3)

Theorem A.1: alpha-hat_gamma - sum_k p_k^2 <= alpha_gamma <= alpha-hat_gamma for gamma >= 0. At gamma = 0 the left
inequality is an equality.

The score is f = <z, z'> + sigma (n_x + n_y). The standard normal n_x and n_y stand for the unique features of x and y.
The difference of two scores with a common x or y is normal with variance 2 sigma^2, so both rates have closed forms.

The proof bounds P(f - f' <= gamma | z = z') from above by its value at gamma = 0. This value is a lower bound, because
the probability grows with gamma. The left inequality is wrong for every gamma > 0; with 2 sum_k p_k^2 it is correct.
"""

import numpy as np
from scipy.special import ndtr

from clipx.theory.claims import Check, near
from clipx.theory.experiment import Array

SIGMA = 0.1  # spread of the unique features
GAMMAS = np.linspace(0.0, 1.0, 101)


def rates(v: Array, p: Array, gammas: Array) -> tuple[Array, Array]:
    """Return alpha_gamma and alpha-hat_gamma, each [G], for classes v [K, D] with probabilities p [K]; gammas [G]."""
    f = v @ v.T
    mean = f.diagonal()[:, None] - f  # mean of f(x, y) - f(x, y') and of f(x, y) - f(x', y), for z and z'
    missed = ndtr((gammas[:, None, None] - mean) / (SIGMA * np.sqrt(2)))
    both = 2 * np.outer(p, p) * missed  # two directions
    own = both.diagonal(axis1=1, axis2=2).sum(axis=1)
    total = both.sum(axis=(1, 2))
    return total - own, total


def checks(v: Array) -> list[Check]:
    """Check Theorem A.1 on classes v whose probabilities are proportional to 1, 1/2, 1/3, ..."""
    p = 1 / np.arange(1, len(v) + 1)
    p /= p.sum()
    alpha, alpha_hat = rates(v, p, GAMMAS)
    collision = float(np.square(p).sum())
    distance = alpha_hat - alpha
    return [
        Check("smallest alpha-hat - alpha over gamma", float(distance.min()), low=-1e-12),
        near("(alpha-hat - alpha) / sum p^2 at gamma = 0", float(distance[0]) / collision, 1.0, 1e-9),
        Check("largest (alpha-hat - alpha) / sum p^2 over gamma", float(distance.max()) / collision, high=1 + 1e-9),
    ]
