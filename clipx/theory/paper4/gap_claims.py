"""Claim 4.8 in four parts, from the solved problem of `gap`."""

import numpy as np

from clipx.theory.claims import Check, CheckedClaim, near
from clipx.theory.paper1.case_study import Array
from clipx.theory.paper4 import gap_growth
from clipx.theory.paper4.gap import GapResult
from clipx.theory.paper4.gap_flow import beta_of_gamma, slope_ratio


def slow_line(t: Array, gap: Array) -> float:
    """R^2 of the gap against 1/log(t)^2, from t = 100 (Figure 4a)."""
    late = t >= 100
    return float(np.corrcoef(gap[late], 1 / np.log(t[late]) ** 2)[0, 1] ** 2) if late.sum() > 2 else float("nan")


def claims(result: GapResult) -> list[CheckedClaim]:
    """4.8 of the project's list, in four parts."""
    settings, flow = result.settings, result.flow
    invariant = np.abs(flow.beta / beta_of_gamma(flow.gamma, settings.gamma0, settings.beta0) - 1).max()
    slopes = np.abs(flow.slope_ratio / slope_ratio(flow.gamma, flow.beta) - 1).max()
    limit = settings.scheme_beta0**2 * settings.gamma0 * np.exp(-(settings.gamma0**2) / 2)
    scaled = result.slow_gamma[1:] * np.log(result.slow_t[1:]) ** 2
    learned, *others = result.schemes.values()
    return [
        CheckedClaim(
            "4.8",
            "Lemma 3.1: along the flow beta(gamma) = beta0 sqrt(gamma0/gamma) exp((gamma^2 - gamma0^2)/4)",
            [
                Check("largest relative deviation of beta(gamma)", float(invariant), high=1e-6),
                Check("largest relative deviation of (dgamma/dt)/(dbeta/dt)", float(slopes), high=1e-6),
            ],
        ),
        CheckedClaim(
            "4.8",
            "Theorem 3.2: with beta = exp(nu) and matched pairs the gap is at least of the order of 1/log(t)^2",
            [
                Check("smallest margin alpha(Z) along the flow (assumed positive)", float(flow.margin.min()), low=0.0),
                Check("R^2 of the gap against 1/log(t)^2, t >= 100", slow_line(flow.t, flow.gap), low=0.99),
                Check("gamma log(t)^2 at t = 1e300 over its limit", float(scaled[-1] / limit), 0.9, 1.0),
            ],
        ),
        CheckedClaim(
            "4.8",
            "Appendix C: beta = nu, constant and linear schedules close the gap faster, with closed forms",
            [
                *result.closed_forms.values(),
                Check(
                    "largest gamma at the end over the learned beta = exp(nu)'s",
                    float(max(o[-1] for o in others) / learned[-1]),
                    high=0.5,
                ),
            ],
        ),
        _growth_claim(result),
    ]


def _growth_claim(result: GapResult) -> CheckedClaim:
    settings, checks = result.settings, []
    for d, row in result.growth.items():
        for beta, growth in zip(result.betas, row, strict=True):
            name = f"d={d}, beta0={beta:.4g}: dgamma/dt, drawn over the limit"
            relative = growth.by_gamma / growth.limit
            # In low dimensions the softmax over n features is close to its limit; else it is biased, not in sign.
            low, high = (0.9, 1.1) if d == 3 else (0.0, np.inf)
            error = 1.96 * relative.std(ddof=1) / np.sqrt(len(relative))
            checks.append(Check(name, float(relative.mean()), low, high, float(error)))
    shares = np.mean([(g.by_gap > 0).mean() for row in result.growth.values() for g in row])
    three, bessel = (f(settings.beta0, settings.gamma0) for f in (gap_growth.growth_three, _growth_in_three))
    checks += [
        near("d=3: coth a - 1/a over the Bessel form", three / bessel, 1, 1e-10),
        Check("share of draws whose gap grows", float(shares), low=0.95),
    ]
    return CheckedClaim("4.8", "Theorem 3.3: from uniform random features the gap grows at t = 0", checks)


def _growth_in_three(beta0: float, gamma0: float) -> float:
    return gap_growth.growth(beta0, gamma0, 3)
