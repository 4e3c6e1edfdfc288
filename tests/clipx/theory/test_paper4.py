"""Claim 4.8: Lemma 3.1 along the flow, slow and fast closing of the gap, growth from random features."""

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from clipx.theory import paper4
from clipx.theory.experiment import Array


@pytest.fixture(scope="module")
def solved() -> paper4.GapResult:
    return paper4.solve(paper4.GapSettings(draws=12, growth_n=128))


def test_all_four_parts_of_the_claim_hold(solved: paper4.GapResult) -> None:
    assert [claim.verdict for claim in paper4.claims(solved)] == ["holds"] * 4


@pytest.mark.parametrize(("beta0", "d"), [(1 / 0.07, 3), (30.0, 64), (5.0, 512), (1 / 0.07, 1024)])
def test_the_growth_equals_the_series_of_the_bessel_functions(beta0: float, d: int) -> None:
    gamma0 = 0.5
    a, k = beta0 * (1 - gamma0**2), np.arange(200)
    log_I = [
        logsumexp((2 * k + order) * np.log(a / 2) - gammaln(k + 1) - gammaln(k + order + 1))
        for order in ((d - 2) / 2, d / 2)
    ]
    rate = 2 * beta0 * gamma0 * np.exp(log_I[1] - log_I[0])
    assert paper4.growth_rate(beta0, gamma0, d) == pytest.approx(rate, rel=1e-9)


def test_invariant_holds_along_the_whole_flow_of_a_larger_mismatch_than_in_the_claim() -> None:
    gamma0, beta0 = 0.2, 5.0
    flow = paper4.full_flow(6, 3, gamma0, beta0, 1e6, 1.0, np.random.default_rng(1))
    assert flow.gamma.min() < 0.8 * gamma0 or flow.gamma.max() > 1.2 * gamma0, "gamma did not change"
    assert np.abs(flow.beta / paper4.beta_of_gamma(flow.gamma, gamma0, beta0) - 1).max() < 1e-6
    assert np.abs(flow.slope_ratio / paper4.slope_ratio(flow.gamma, flow.beta) - 1).max() < 1e-6


def test_velocity_equals_the_negative_finite_differences_of_a_loss_in_plain_loops() -> None:
    rng = np.random.default_rng(0)
    n, d = 4, 3
    start = np.concatenate([rng.standard_normal(2 * n * d), [0.7, 0.4]])

    def loss(state: Array) -> float:
        raw, nu, gamma = state[:-2].reshape(2, n, d), state[-2], state[-1]
        # the parallel embeddings with the extra coordinate +-gamma
        unit = raw / np.linalg.norm(raw, axis=-1, keepdims=True)
        x = [np.append(np.sqrt(1 - gamma**2) * row, gamma) for row in unit[0]]
        y = [np.append(np.sqrt(1 - gamma**2) * row, -gamma) for row in unit[1]]
        M = np.exp(nu) * np.array([[a @ b + gamma**2 for b in y] for a in x])  # a @ b has a -gamma^2, eq. (3) does not
        total = 0.0
        for i in range(n):
            total += np.log(np.exp(M[i]).sum()) - M[i, i] + np.log(np.exp(M[:, i]).sum()) - M[i, i]
        return float(total / (2 * n))

    raw = start[:-2].reshape(2, n, d)
    by_theta, by_phi, by_nu, by_gamma = paper4.velocity(raw[0], raw[1], start[-2], start[-1])
    found = np.concatenate([by_theta.ravel(), by_phi.ravel(), [by_nu, by_gamma]])
    for at in range(len(start)):
        step = 1e-6 * np.eye(len(start))[at]
        assert found[at] == pytest.approx(-(loss(start + step) - loss(start - step)) / 2e-6, abs=1e-8)


def test_with_mismatched_pairs_gamma_grows_to_1() -> None:
    flow = paper4.full_flow(8, 8, 0.5, 14.3, 1e6, 100.0, np.random.default_rng(0))
    assert flow.margin[0] < 0
    assert flow.t[-1] < 1e6, "the integration must stop at gamma = 1"


@pytest.mark.parametrize(("beta0", "beta1"), [(5.0, 2.0), (3.0, 6.0), (4.0, 4.0)])
def test_linear_schedule_has_the_rate_of_appendix_c(beta0: float, beta1: float) -> None:
    end = paper4.linear_end(1e-4, beta0, beta1, 20.0)
    assert -np.log(end / 1e-4) / 20 == pytest.approx(2 * paper4.linear_rate(beta0, beta1), rel=1e-5)
