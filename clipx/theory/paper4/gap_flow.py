"""Paper 4, section 3 (Lemma 3.1, Theorems 3.2, 3.3): gradient flow of parallel modalities with a learned temperature.

Parallel modalities: H~_X = [sqrt(1 - gamma^2) H_X, gamma 1], H~_Y = [sqrt(1 - gamma^2) H_Y, -gamma 1]; the rows of
H_X, H_Y are the normalised rows of theta, phi. The loss l(M) of M = beta(nu) (1 - gamma^2) H_X H_Y^T (eq. 3) is the
mean of both directions' cross entropies. The gradient flow (4) on (theta, phi, nu, gamma) with beta = exp(nu)
is integrated over s = log(1 + t) to reach large t.

Theorem 3.3: from uniform random features the gap grows at t = 0. The rows of H_X, H_Y are independent and uniform on
the sphere S^(d-1); a = beta0 (1 - gamma0^2), rho = (d - 2)/2. For n -> infinity

    dgamma/dt at t = 0  =  2 beta0 gamma0 (I_(rho-1)(a) / I_rho(a) - 2 rho / a)
                        =  2 beta0 gamma0 I_(rho+1)(a) / I_rho(a)

with modified Bessel functions I. For d = 3 this is 2 beta0 gamma0 (coth a - 1/a). The paper's bound on dDelta/dt is
twice this rate (Delta >= 2 gamma).
"""

from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import ive, softmax

from clipx.theory.experiment import Array


@dataclass(frozen=True)
class Flow:
    """Trajectory at T times."""

    t: Array  # [T]
    gamma: Array  # [T]
    beta: Array  # [T]
    gap: Array  # [T], Delta, distance between the centres of the modalities
    margin: Array  # [T], alpha(Z), smallest margin
    slope_ratio: Array  # [T], (dgamma/dt) / (dbeta/dt), computed from the gradient


def beta_of_gamma(gamma: Array | float, gamma0: float, beta0: float) -> Array:
    """Equation (6): beta along the flow for beta = exp(nu)."""
    return np.asarray(beta0 * np.sqrt(gamma0 / gamma) * np.exp((gamma**2 - gamma0**2) / 4))


def slope_ratio(gamma: Array, beta: Array) -> Array:
    """Equation (5): (dgamma/dt) / (dbeta/dt) for beta = exp(nu), where dbeta/dnu = beta."""
    return np.asarray(-2 * gamma / (beta * (1 - gamma**2)))


def normalise(raw: Array) -> Array:
    """Scale the last axis to unit length."""
    return np.asarray(raw / np.linalg.norm(raw, axis=-1, keepdims=True))


def velocity(theta: Array, phi: Array, nu: float, gamma: float) -> tuple[Array, Array, float, float]:
    """Return -dl/d(theta, phi, nu, gamma); theta, phi [n, d]."""
    length_x, length_y = (np.linalg.norm(raw, axis=1, keepdims=True) for raw in (theta, phi))
    x, y, beta = theta / length_x, phi / length_y, np.exp(nu)
    Z, n = x @ y.T, len(x)
    M = beta * (1 - gamma**2) * Z
    by_M = (softmax(M, -1) + softmax(M, -2) - 2 * np.eye(n)) / (2 * n)
    by_x, by_y = (beta * (1 - gamma**2) * g for g in (by_M @ y, by_M.T @ x))
    by_theta = (by_x - (by_x * x).sum(axis=1, keepdims=True) * x) / length_x
    by_phi = (by_y - (by_y * y).sum(axis=1, keepdims=True) * y) / length_y
    by_beta = float((by_M * Z).sum()) * (1 - gamma**2)
    by_gamma = -2 * beta * gamma * float((by_M * Z).sum())
    return -by_theta, -by_phi, -by_beta * beta, -by_gamma


def centres_distance(x: Array, y: Array, gamma: float) -> float:
    """Return Delta for H_X = x, H_Y = y; at least 2 gamma."""
    between = (x.mean(axis=0) - y.mean(axis=0)) * np.sqrt(1 - gamma**2)
    return float(np.sqrt(between @ between + 4 * gamma**2))


def smallest_margin(Z: Array) -> float:
    """Return alpha(Z), the smallest of all Z_ii - Z_ij and Z_ii - Z_ji with j != i."""
    own, others = np.diagonal(Z), ~np.eye(len(Z), dtype=bool)
    return float(min((own[:, None] - Z)[others].min(), (own - Z)[others].min()))


def full_flow(
    n: int, d: int, gamma0: float, beta0: float, t_end: float, mismatch: float, rng: np.random.Generator
) -> Flow:
    """Integrate from phi = theta + mismatch * noise until t_end, or until gamma reaches 1.

    Theorem 3.2 assumes matched pairs (all margins positive), which a large mismatch violates.
    """
    raw = rng.standard_normal((2, n, d))
    raw[1] = raw[0] + mismatch * raw[1]
    start = np.concatenate([raw.ravel(), [np.log(beta0), gamma0]])

    def unpack(state: Array) -> tuple[Array, Array, float, float]:
        raw = state[:-2].reshape(2, n, d)
        return raw[0], raw[1], float(state[-2]), float(state[-1])

    def right_hand_side(s: float, state: Array) -> Array:
        by_theta, by_phi, by_nu, by_gamma = velocity(*unpack(state))
        return np.asarray(np.exp(s) * np.concatenate([by_theta.ravel(), by_phi.ravel(), [by_nu, by_gamma]]))

    def reaches_one(s: float, state: Array) -> float:
        return float(1 - state[-1])

    reaches_one.terminal = True  # type: ignore[attr-defined]  # makes scipy stop at the event
    s = np.linspace(0, np.log1p(t_end), 160)
    solved = solve_ivp(right_hand_side, (0, s[-1]), start, "LSODA", s, events=reaches_one, rtol=1e-10, atol=1e-12)
    rows = []
    for state in solved.y.T:
        theta, phi, nu, gamma = unpack(state)
        x, y = normalise(theta), normalise(phi)
        *_, by_nu, by_gamma = velocity(theta, phi, nu, gamma)
        beta = float(np.exp(nu))
        rows.append((gamma, beta, centres_distance(x, y, gamma), smallest_margin(x @ y.T), by_gamma / (by_nu * beta)))
    return Flow(np.expm1(solved.t), *np.array(rows).T)


@dataclass(frozen=True)
class Growth:
    """Rates of change at t = 0 for one (d, beta0)."""

    limit: float  # dgamma/dt for n -> infinity
    gamma_rates: Array  # [draws], dgamma/dt at finite n
    gap_rates: Array  # [draws], dDelta/dt at finite n


def growth_rate(beta0: float, gamma0: float, d: int) -> float:
    """Return dgamma/dt at t = 0 for n -> infinity (the exponential scale of `ive` cancels)."""
    a, rho = beta0 * (1 - gamma0**2), (d - 2) / 2
    return float(2 * beta0 * gamma0 * ive(rho + 1, a) / ive(rho, a))


def growth_rate_3d(beta0: float, gamma0: float) -> float:
    """Return `growth_rate` for d = 3, computed by elementary functions."""
    a = beta0 * (1 - gamma0**2)
    return float(2 * beta0 * gamma0 * (1 / np.tanh(a) - 1 / a))


def sample_growth(beta0: float, gamma0: float, n: int, d: int, draws: int, rng: np.random.Generator) -> Growth:
    """Draw n random features per modality `draws` times and compute dgamma/dt and dDelta/dt at t = 0.

    dDelta/dt is a difference quotient along the flow, which also moves the features.
    """
    step, rates = 1e-7, []
    for _ in range(draws):
        x, y = normalise(rng.standard_normal((2, n, d)))
        by_theta, by_phi, _, by_gamma = velocity(x, y, float(np.log(beta0)), gamma0)
        x_next, y_next = normalise(x + step * by_theta), normalise(y + step * by_phi)
        increase = centres_distance(x_next, y_next, gamma0 + step * by_gamma) - centres_distance(x, y, gamma0)
        rates.append((by_gamma, increase / step))
    return Growth(growth_rate(beta0, gamma0, d), *np.array(rates).T)
