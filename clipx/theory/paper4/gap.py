"""Why the modality gap stays: slow closure under a learned temperature, faster schemes, early growth (paper 4).

The parts: `gap_flow` (Lemma 3.1, Theorem 3.2), `gap_schemes` (appendix C), `gap_growth` (Theorem 3.3).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clipx.config.setting import AT_LEAST_0, POSITIVE, Rule
from clipx.theory.claims import Check, near
from clipx.theory.experiment import COUNT, OPEN_SHARE, Settings
from clipx.theory.paper1.case_study import Array
from clipx.theory.paper4 import gap_growth, gap_schemes
from clipx.theory.paper4.gap_flow import Flow, full_flow, slow_flow

SMALL = 1e-3  # gamma0 where a closed form is that of the limit gamma -> 0


@dataclass(frozen=True, kw_only=True)
class GapSettings(Settings):
    """Defaults: CLIP's initial temperature for the flow; a smaller beta0 where nothing but the rate matters."""

    n: int = 16  # pairs of the full flow
    d: int = 8  # dimension of H_X, H_Y
    gamma0: float = 0.5  # half the initial gap
    beta0: float = 1 / 0.07  # initial inverse temperature
    mismatch: float = 0.3  # noise between the two sides of a pair at the start
    t_end: float = 1e6  # of the full flow
    scheme_beta0: float = 5.0  # beta0 of the simplified setting
    scheme_beta1: float = 2.0  # end of the linear schedule
    growth_n: int = 256  # pairs of Theorem 3.3's draws
    growth_d: tuple[int, ...] = (3, 16, 64)
    draws: int = 40
    seed: int = 0

    RULES: ClassVar[Mapping[str, Rule]] = {
        "n": COUNT,
        "d": COUNT,
        "gamma0": OPEN_SHARE,
        "beta0": POSITIVE,
        "mismatch": AT_LEAST_0,
        "t_end": (lambda v: 1e3 <= v <= 1e12, "1e3..1e12"),
        "scheme_beta0": (lambda v: 0 < v <= 20, "more than 0, at most 20"),
        "scheme_beta1": (lambda v: 0 < v <= 20, "more than 0, at most 20"),
        "growth_n": COUNT,
        "growth_d": (lambda v: v >= 3, "3 or more"),
        "draws": COUNT,
        "seed": AT_LEAST_0,
    }


@dataclass(frozen=True)
class Growth:
    """Theorem 3.3 at one (d, a): the limit, and draws at finite n."""

    limit: float  # dgamma/dt
    by_gamma: Array  # [draws]
    by_gap: Array  # [draws], dDelta/dt


@dataclass(frozen=True)
class GapResult:
    settings: GapSettings
    flow: Flow
    slow_t: Array  # times of the simplified setting
    slow_gamma: Array
    t: Array  # times of the schemes
    schemes: dict[str, Array]  # name -> gamma(t)
    closed_forms: dict[str, Check]
    betas: Array  # beta0 of the growth curves
    growth: dict[int, list[Growth]]  # d -> one for each of `betas`


def solve(settings: GapSettings) -> GapResult:
    """All three parts."""
    rng = np.random.default_rng(settings.seed)
    flow = full_flow(settings.n, settings.d, settings.gamma0, settings.beta0, settings.t_end, settings.mismatch, rng)
    slow_t = np.concatenate([[0.0], np.logspace(0, 300, 301)])
    t = np.concatenate([[0.0], np.logspace(-1, 6, 211)])
    betas = np.array([2.0, 5.0, 10.0, settings.beta0, 30.0])
    betas.sort()
    return GapResult(
        settings=settings,
        flow=flow,
        slow_t=slow_t,
        slow_gamma=slow_flow(settings.gamma0, settings.scheme_beta0, slow_t),
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
        "learned, beta = exp(nu)": slow_flow(gamma0, beta0, t),
        "learned, beta = nu": np.exp(gap_schemes.identity_flow(gamma0, beta0, t)[0]),
        "constant beta0": gap_schemes.integrate(gamma0, lambda *_: beta0, t),
        "linear beta0 to beta1, ending at t": linear,
    }


def _closed_forms(settings: GapSettings, t: Array) -> dict[str, Check]:
    """Largest deviations of the integrated schemes from appendix C."""
    gamma0, beta0, beta1 = settings.gamma0, settings.scheme_beta0, settings.scheme_beta1
    log_gamma, beta = gap_schemes.identity_flow(gamma0, beta0, t)
    identity = np.abs(beta / gap_schemes.identity_beta(log_gamma, gamma0, beta0) - 1).max()
    small, _ = gap_schemes.identity_flow(SMALL, beta0, t)
    asymptotic = np.abs(small - gap_schemes.identity_small_gamma(SMALL, beta0, t)).max()
    early = np.linspace(0, 10 * np.exp(beta0) / beta0, 100)  # ten times the time in which gamma falls by 1/e^2
    constant = gap_schemes.integrate(gamma0, lambda *_: beta0, early)
    took = np.abs(gap_schemes.constant_time(constant, gamma0, beta0) - early).max() / early[-1]
    rate = -np.log(gap_schemes.linear_end(SMALL, beta0, beta1, 10.0) / SMALL) / 10
    return {
        "identity": Check("beta = nu: relative deviation from beta(gamma)", float(identity), high=1e-6),
        "asymptotic": Check("beta = nu, small gamma: deviation of log gamma", float(asymptotic), high=1e-3),
        "constant": Check("constant beta: relative deviation of t(gamma)", float(took), high=1e-6),
        "linear": near("linear beta: rate over 2 c", rate / (2 * gap_schemes.linear_rate(beta0, beta1)), 1, 1e-4),
    }


def _growth(settings: GapSettings, d: int, beta0: float, rng: np.random.Generator) -> Growth:
    drawn = gap_growth.sampled(beta0, settings.gamma0, settings.growth_n, d, settings.draws, rng)
    return Growth(gap_growth.growth(beta0, settings.gamma0, d), *drawn)
