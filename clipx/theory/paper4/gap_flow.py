"""The modality gap closes slowly while the temperature is learned (paper 4, section 3.1: Lemma 3.1, Theorem 3.2).

Parallel modalities: H~_X = [sqrt(1 - gamma^2) H_X, gamma 1], H~_Y = [sqrt(1 - gamma^2) H_Y, -gamma 1], with rows of
H_X, H_Y on the sphere (theta, phi before normalising), loss l(M) of M = beta(nu) (1 - gamma^2) H_X H_Y^T
(eq. 3): the mean of both directions' cross entropies. Gradient flow (4) on (theta, phi, nu, gamma) with
beta = exp(nu), integrated over s = log(1 + t) so that t can be huge.
"""

from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from clipx.theory.paper1.case_study import Array


@dataclass(frozen=True)
class Flow:
    """A trajectory."""

    t: Array  # [T]
    gamma: Array  # [T]
    beta: Array  # [T]
    gap: Array  # [T] Delta, distance of the modalities' centres
    margin: Array  # [T] alpha(Z), the smallest margin
    slope_ratio: Array  # [T] (dgamma/dt) / (dbeta/dt) of the flow's own right-hand side


def beta_of_gamma(gamma: Array, gamma0: float, beta0: float) -> Array:
    """Equation (6): exact along the flow for beta = exp(nu)."""
    return np.asarray(beta0 * np.sqrt(gamma0 / gamma) * np.exp((gamma**2 - gamma0**2) / 4))


def slope_ratio(gamma: Array, beta: Array) -> Array:
    """Equation (5) for beta = exp(nu), where beta' = beta."""
    return np.asarray(-2 * gamma / (beta * (1 - gamma**2)))


def contrast_gradient(M: Array) -> Array:
    """dl/dM [..., n, n]."""
    n = M.shape[-1]
    return np.asarray((_softmax(M, -1) + _softmax(M, -2) - 2 * np.eye(n)) / (2 * n))


def velocity(theta: Array, phi: Array, nu: float, gamma: float) -> tuple[Array, Array, float, float]:
    """-dl/d(theta, phi, nu, gamma); theta, phi [n, d]."""
    length_x, length_y = (np.linalg.norm(raw, axis=1, keepdims=True) for raw in (theta, phi))
    x, y, beta = theta / length_x, phi / length_y, np.exp(nu)
    Z = x @ y.T
    by_M = contrast_gradient(beta * (1 - gamma**2) * Z)
    by_x, by_y = (beta * (1 - gamma**2) * g for g in (by_M @ y, by_M.T @ x))
    by_theta = (by_x - (by_x * x).sum(axis=1, keepdims=True) * x) / length_x
    by_phi = (by_y - (by_y * y).sum(axis=1, keepdims=True) * y) / length_y
    by_beta = float((by_M * Z).sum()) * (1 - gamma**2)
    by_gamma = -2 * beta * gamma * float((by_M * Z).sum())
    return -by_theta, -by_phi, -by_beta * beta, -by_gamma


def centres_distance(x: Array, y: Array, gamma: float) -> float:
    """Delta >= 2 gamma of normalised H_X, H_Y."""
    between = (x.mean(axis=0) - y.mean(axis=0)) * np.sqrt(1 - gamma**2)
    return float(np.sqrt(between @ between + 4 * gamma**2))


def smallest_margin(Z: Array) -> float:
    """alpha(Z): smallest own similarity less another's, over rows and columns."""
    own, others = np.diagonal(Z), ~np.eye(len(Z), dtype=bool)
    return float(min((own[:, None] - Z)[others].min(), (own - Z)[others].min()))


def full_flow(
    n: int, d: int, gamma0: float, beta0: float, t_end: float, mismatch: float, rng: np.random.Generator
) -> Flow:
    """From phi = theta + mismatch * noise to t_end, or to where gamma leaves (0, 1).

    Theorem 3.2 assumes matched pairs (all margins positive); a large mismatch breaks that.
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

    def leaves(s: float, state: Array) -> float:
        return float(1 - state[-1])

    leaves.terminal = True  # type: ignore[attr-defined]  # scipy's way to say that the event ends the integration
    s = np.linspace(0, np.log1p(t_end), 160)
    solved = solve_ivp(right_hand_side, (0, s[-1]), start, "LSODA", s, events=leaves, rtol=1e-10, atol=1e-12)
    rows = []
    for state in solved.y.T:
        theta, phi, nu, gamma = unpack(state)
        x, y = (raw / np.linalg.norm(raw, axis=1, keepdims=True) for raw in (theta, phi))
        *_, by_nu, by_gamma = velocity(theta, phi, nu, gamma)
        beta = float(np.exp(nu))
        rows.append((gamma, beta, centres_distance(x, y, gamma), smallest_margin(x @ y.T), by_gamma / (by_nu * beta)))
    return Flow(np.expm1(solved.t), *np.array(rows).T)


def slow_flow(gamma0: float, beta0: float, t: Array) -> Array:
    """gamma(t) of the simplified setting l(m) = exp(-m): dgamma/dt = -2 beta gamma exp(-beta (1 - gamma^2)).

    beta follows gamma by (6). Integrated in log(gamma) over log(1 + t); gamma log(t)^2 tends to
    beta0^2 gamma0 exp(-gamma0^2 / 2).
    """

    def right_hand_side(s: float, state: Array) -> Array:
        gamma = np.exp(state)
        beta = beta_of_gamma(gamma, gamma0, beta0)
        return np.asarray(-2 * beta * np.exp(s - beta * (1 - gamma**2)))

    s = np.log1p(t)
    solved = solve_ivp(right_hand_side, (0, s[-1]), [np.log(gamma0)], "LSODA", s, rtol=1e-10, atol=1e-12)
    return np.asarray(np.exp(solved.y[0]))


def _softmax(logits: Array, axis: int) -> Array:
    e = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))
