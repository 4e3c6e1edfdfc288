"""Paper 4, claim 4.8: why the modality gap persists.

It joins `gap_flow` (Lemma 3.1, Theorem 3.2), `gap_schemes` (appendix C) and `gap_growth` (Theorem 3.3).
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from clipx.theory.claims import Check, near
from clipx.theory.experiment import OPEN_SHARE, POSITIVE, Array, Rule, Settings, at_least
from clipx.theory.paper4 import gap_growth, gap_schemes
from clipx.theory.paper4.gap_flow import Flow, full_flow

BETA: Rule = (lambda v: 0 < v <= 20, "more than 0, at most 20")
SMALL = 1e-3  # gamma0 for closed forms of the limit gamma -> 0


@dataclass(frozen=True, kw_only=True)
class GapSettings(Settings):
    """Defaults: CLIP's initial temperature for the flow, a smaller beta0 for the schemes."""

    n: Annotated[int, at_least(2)] = 16  # pairs of the full flow
    d: Annotated[int, at_least(2)] = 8  # dimension of H_X, H_Y
    gamma0: Annotated[float, OPEN_SHARE] = 0.5  # half the initial gap
    beta0: Annotated[float, POSITIVE] = 1 / 0.07  # initial inverse temperature
    mismatch: Annotated[float, at_least(0)] = 0.3  # standard deviation of phi - theta at the start
    t_end: Annotated[float, (lambda v: 1e3 <= v <= 1e12, "1e3..1e12")] = 1e6  # of the full flow
    scheme_beta0: Annotated[float, BETA] = 5.0  # initial beta of the schemes
    scheme_beta1: Annotated[float, BETA] = 2.0  # final beta of the linear schedule
    growth_n: Annotated[int, at_least(2)] = 256  # pairs in a draw for Theorem 3.3
    growth_d: Annotated[tuple[int, ...], at_least(3)] = (3, 16, 64)  # dimensions for Theorem 3.3
    draws: Annotated[int, at_least(2)] = 40
    seed: Annotated[int, at_least(0)] = 0


@dataclass(frozen=True)
class Growth:
    """Theorem 3.3 at one (d, beta0): rates of change at t = 0."""

    limit: float  # dgamma/dt for n -> infinity
    gamma_rates: Array  # [draws], dgamma/dt at finite n
    gap_rates: Array  # [draws], dDelta/dt at finite n


@dataclass(frozen=True)
class GapResult:
    settings: GapSettings
    flow: Flow
    slow_t: Array  # times up to 1e300
    slow_gamma: Array  # gamma at `slow_t` for l(m) = exp(-m), beta = exp(nu)
    t: Array  # times of `schemes`
    schemes: dict[str, Array]  # name -> gamma(t)
    closed_forms: list[Check]  # deviations of the schemes from their closed forms
    betas: Array  # values of beta0 for `growth`
    growth: dict[int, list[Growth]]  # d -> one entry for each of `betas`


def solve(settings: GapSettings) -> GapResult:
    """Compute all three parts."""
    rng = np.random.default_rng(settings.seed)
    flow = full_flow(settings.n, settings.d, settings.gamma0, settings.beta0, settings.t_end, settings.mismatch, rng)
    slow_t = np.concatenate([[0.0], np.logspace(0, 300, 301)])
    t = np.concatenate([[0.0], np.logspace(-1, 6, 211)])
    betas = np.sort([2.0, 5.0, 10.0, settings.beta0, 30.0])
    return GapResult(
        settings=settings,
        flow=flow,
        slow_t=slow_t,
        slow_gamma=gap_schemes.exponential_flow(settings.gamma0, settings.scheme_beta0, slow_t),
        t=t,
        schemes=_schemes(settings, t),
        closed_forms=_closed_forms(settings, t),
        betas=betas,
        growth={d: [_growth(settings, d, float(beta), rng) for beta in betas] for d in settings.growth_d},
    )


def _schemes(settings: GapSettings, t: Array) -> dict[str, Array]:
    gamma0, beta0, beta1 = settings.gamma0, settings.scheme_beta0, settings.scheme_beta1
    ends = t[t >= 1]
    linear = np.interp(t, ends, [gap_schemes.linear_end(gamma0, beta0, beta1, float(end)) for end in ends])
    linear[t < 1] = np.nan
    return {
        "learned, beta = exp(nu)": gap_schemes.exponential_flow(gamma0, beta0, t),
        "learned, beta = nu": np.exp(gap_schemes.identity_flow(gamma0, beta0, t)[0]),
        "constant beta0": gap_schemes.integrate(gamma0, lambda *_: beta0, t),
        "linear beta0 to beta1, ending at t": linear,
    }


def _closed_forms(settings: GapSettings, t: Array) -> list[Check]:
    """Check the integrated schemes against the closed forms of appendix C."""
    gamma0, beta0, beta1 = settings.gamma0, settings.scheme_beta0, settings.scheme_beta1
    log_gamma, beta = gap_schemes.identity_flow(gamma0, beta0, t)
    identity = np.abs(beta / gap_schemes.identity_beta(log_gamma, gamma0, beta0) - 1).max()
    small, _ = gap_schemes.identity_flow(SMALL, beta0, t)
    asymptotic = np.abs(small - gap_schemes.identity_small_gamma(SMALL, beta0, t)).max()
    early = np.linspace(0, 10 * np.exp(beta0) / beta0, 100)  # ten times the time in which gamma falls by a factor e^2
    constant = gap_schemes.integrate(gamma0, lambda *_: beta0, early)
    times = np.abs(gap_schemes.constant_time(constant, gamma0, beta0) - early).max() / early[-1]
    rate = -np.log(gap_schemes.linear_end(SMALL, beta0, beta1, 10.0) / SMALL) / 10
    return [
        Check("beta = nu: relative deviation of beta(gamma)", float(identity), high=1e-6),
        Check("beta = nu, small gamma: deviation of log gamma", float(asymptotic), high=1e-3),
        Check("constant beta: relative deviation of t(gamma)", float(times), high=1e-6),
        near("linear beta: rate / (2 c)", rate / (2 * gap_schemes.linear_rate(beta0, beta1)), 1, 1e-4),
    ]


def _growth(settings: GapSettings, d: int, beta0: float, rng: np.random.Generator) -> Growth:
    rates = gap_growth.sample_growth_rates(beta0, settings.gamma0, settings.growth_n, d, settings.draws, rng)
    return Growth(gap_growth.growth_rate(beta0, settings.gamma0, d), *rates)
