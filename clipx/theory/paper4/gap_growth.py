"""Paper 4, section 3.2 (Theorem 3.3): from uniform random features the gap grows at t = 0.

The rows of H_X, H_Y are independent and uniform on the sphere S^(d-1); a = beta0 (1 - gamma0^2), rho = (d - 2)/2.
For n -> infinity

    dgamma/dt at t = 0  =  2 beta0 gamma0 (I_(rho-1)(a) / I_rho(a) - 2 rho / a)
                        =  2 beta0 gamma0 I_(rho+1)(a) / I_rho(a)

which is 2 beta0 gamma0 (coth a - 1/a) for d = 3. The paper's bound on dDelta/dt is twice that (Delta >= 2 gamma).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ive

from clipx.theory.experiment import Array
from clipx.theory.paper4.gap_flow import centres_distance, normalise, velocity


@dataclass(frozen=True)
class Growth:
    """Rates of change at t = 0 for one (d, beta0)."""

    limit: float  # dgamma/dt for n -> infinity
    gamma_rates: Array  # [draws], dgamma/dt at finite n
    gap_rates: Array  # [draws], dDelta/dt at finite n


def growth_rate(beta0: float, gamma0: float, d: int) -> float:
    """dgamma/dt at t = 0 for n -> infinity (the exponential scale of `ive` cancels)."""
    a, rho = beta0 * (1 - gamma0**2), (d - 2) / 2
    return float(2 * beta0 * gamma0 * ive(rho + 1, a) / ive(rho, a))


def growth_rate_3d(beta0: float, gamma0: float) -> float:
    """`growth_rate` for d = 3 in elementary functions."""
    a = beta0 * (1 - gamma0**2)
    return float(2 * beta0 * gamma0 * (1 / np.tanh(a) - 1 / a))


def sample_growth(beta0: float, gamma0: float, n: int, d: int, draws: int, rng: np.random.Generator) -> Growth:
    """Draw n random features `draws` times.

    dDelta/dt is a difference quotient along the flow, in which the features move too.
    """
    step, rates = 1e-7, []
    for _ in range(draws):
        x, y = normalise(rng.standard_normal((2, n, d)))
        by_theta, by_phi, _, by_gamma = velocity(x, y, float(np.log(beta0)), gamma0)
        x_next, y_next = normalise(x + step * by_theta), normalise(y + step * by_phi)
        increase = centres_distance(x_next, y_next, gamma0 + step * by_gamma) - centres_distance(x, y, gamma0)
        rates.append((by_gamma, increase / step))
    return Growth(growth_rate(beta0, gamma0, d), *np.array(rates).T)
