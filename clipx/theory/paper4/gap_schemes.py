"""Paper 4, appendix C: temperature schemes that close the gap at different rates, for l(m) = exp(-m).

dgamma/dt = -2 beta gamma exp(-beta (1 - gamma^2)). Each scheme is integrated and compared with its closed form:

  beta = exp(nu)   beta(gamma) by eq. (6); gamma log(t)^2 tends to beta0^2 gamma0 exp(-gamma0^2 / 2) (Theorem 3.2)
  beta = nu        beta^2 = beta0^2 + log(gamma0/gamma) + (gamma^2 - gamma0^2)/2, from eq. (5) with dbeta/dnu = 1;
                   for small gamma, beta = log(t + exp(beta0)), hence gamma(t) = Theta(1/t^log t)
  beta constant    E1(beta gamma^2) - E1(beta gamma0^2) = 4 beta exp(-beta) t
  beta linear      from beta0 at 0 to beta1 at t: gamma(t) = gamma0 exp(-2 c t) for small gamma0,
                   c = [(beta0 + 1) exp(-beta0) - (beta1 + 1) exp(-beta1)] / (beta1 - beta0)

For constant and linear beta, the paper omits the factor 2 of dgamma/dt in the exponent of gamma(t).
"""

from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import exp1

from clipx.theory.experiment import Array
from clipx.theory.paper4.gap_flow import beta_of_gamma


def integrate(gamma0: float, beta: Callable[[float, float], float], t: Array, rtol: float = 1e-11) -> Array:
    """Return gamma at the ascending times t for beta(t, gamma); log(gamma) is integrated over log(1 + t)."""

    def right_hand_side(s: float, state: Array) -> Array:
        gamma = float(np.exp(state[0]))
        value = beta(float(np.expm1(s)), gamma)
        return np.array([-2 * value * np.exp(s - value * (1 - gamma**2))])

    s = np.log1p(t)
    solved = solve_ivp(right_hand_side, (0, s[-1]), [np.log(gamma0)], "LSODA", s, rtol=rtol, atol=1e-2 * rtol)
    return np.asarray(np.exp(solved.y[0]))


def exponential_flow(gamma0: float, beta0: float, t: Array) -> Array:
    """Return gamma(t) for beta = exp(nu)."""
    return integrate(gamma0, lambda _, gamma: float(beta_of_gamma(gamma, gamma0, beta0)), t, rtol=1e-10)


def identity_beta(log_gamma: Array, gamma0: float, beta0: float) -> Array:
    """Return beta(gamma) for beta = nu."""
    half_squares = (np.exp(2 * log_gamma) - gamma0**2) / 2
    return np.asarray(np.sqrt(beta0**2 + np.log(gamma0) - log_gamma + half_squares))


def identity_flow(gamma0: float, beta0: float, t: Array) -> tuple[Array, Array]:
    """Return (log gamma, beta) at the times t for beta = nu: dbeta/dt = (1 - gamma^2) exp(-beta (1 - gamma^2))."""

    def right_hand_side(s: float, state: Array) -> Array:
        gamma, beta = np.exp(state[0]), state[1]
        pull = np.exp(s - beta * (1 - gamma**2))
        return np.array([-2 * beta * pull, (1 - gamma**2) * pull])

    s = np.log1p(t)
    solved = solve_ivp(right_hand_side, (0, s[-1]), [np.log(gamma0), beta0], "LSODA", s, rtol=1e-11, atol=1e-13)
    return solved.y[0], solved.y[1]


def identity_small_gamma(gamma0: float, beta0: float, t: Array) -> Array:
    """log gamma(t) for beta = nu and small gamma: beta = log(t + exp(beta0)), gamma = gamma0 exp(beta0^2 - beta^2)."""
    return np.asarray(np.log(gamma0) + beta0**2 - np.log(t + np.exp(beta0)) ** 2)


def constant_time(gamma: Array, gamma0: float, beta: float) -> Array:
    """Return the time at which gamma is reached with a constant beta."""
    return np.asarray((exp1(beta * gamma**2) - exp1(beta * gamma0**2)) / (4 * beta * np.exp(-beta)))


def linear_rate(beta0: float, beta1: float) -> float:
    """Return c(beta0, beta1), the mean of beta exp(-beta) over the schedule."""
    if beta0 == beta1:
        return float(beta0 * np.exp(-beta0))
    return float(((beta0 + 1) * np.exp(-beta0) - (beta1 + 1) * np.exp(-beta1)) / (beta1 - beta0))


def linear_end(gamma0: float, beta0: float, beta1: float, t: float) -> float:
    """Return gamma at the end of a linear schedule of length t."""
    return float(integrate(gamma0, lambda now, _: beta0 + (beta1 - beta0) * now / t, np.array([0.0, t]))[-1])
