"""The gap grows at first (paper 4, section 3.2: Theorem 3.3).

Rows of H_X, H_Y independent and uniform on the sphere S^(d-1), a = beta0 (1 - gamma0^2), rho = (d - 2)/2. For n -> inf

    dgamma/dt at t = 0  =  2 beta0 gamma0 (I_(rho-1)(a) / I_rho(a) - 2 rho / a)
                        =  2 beta0 gamma0 I_(rho+1)(a) / I_rho(a)

which is 2 beta0 gamma0 (coth a - 1/a) for d = 3; the paper's bound on dDelta/dt is twice that (Delta >= 2 gamma).
"""

import numpy as np
from scipy.special import ive

from clipx.theory.paper1.case_study import Array
from clipx.theory.paper4.gap_flow import centres_distance, velocity


def growth(beta0: float, gamma0: float, d: int) -> float:
    """dgamma/dt at t = 0 for n -> infinity; the exponential scale of `ive` cancels."""
    a, rho = beta0 * (1 - gamma0**2), (d - 2) / 2
    return float(2 * beta0 * gamma0 * ive(rho + 1, a) / ive(rho, a))


def growth_three(beta0: float, gamma0: float) -> float:
    """The same for d = 3 in elementary functions."""
    a = beta0 * (1 - gamma0**2)
    return float(2 * beta0 * gamma0 * (1 / np.tanh(a) - 1 / a))


def sphere(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Uniform on the sphere of the last axis."""
    return _on_sphere(rng.standard_normal(shape))


def _on_sphere(raw: Array) -> Array:
    return np.asarray(raw / np.linalg.norm(raw, axis=-1, keepdims=True))


def sampled(beta0: float, gamma0: float, n: int, d: int, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """dgamma/dt and dDelta/dt at t = 0 of `draws` random features, each [draws].

    Delta's derivative is a difference quotient along the flow, in which the features move too.
    """
    step, found = 1e-7, []
    for _ in range(draws):
        x, y = sphere((2, n, d), rng)
        by_theta, by_phi, _, by_gamma = velocity(x, y, float(np.log(beta0)), gamma0)
        x_ahead, y_ahead = (_on_sphere(raw) for raw in (x + step * by_theta, y + step * by_phi))
        grown = centres_distance(x_ahead, y_ahead, gamma0 + step * by_gamma) - centres_distance(x, y, gamma0)
        found.append((by_gamma, grown / step))
    by_gamma, by_delta = np.array(found).T
    return by_gamma, by_delta
