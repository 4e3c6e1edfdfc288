"""Claim 1.10 against another implementation, 1.11 against the proof's error rate, 1.16 against draws."""

from dataclasses import replace

import numpy as np
import pytest

from clipx.theory.experiment import Array
from clipx.theory.paper1 import (
    SCORES,
    SIGMA,
    MarginResult,
    MarginSettings,
    bayes_optimum,
    claims,
    equiangular,
    failure_rate_checks,
    failure_rates,
    gradient,
    margin,
    one_close_pair,
    solve,
    top1_error,
    with_unique_features,
)


@pytest.fixture(scope="module")
def solved() -> MarginResult:
    """Return the result after a sixth of the later steps, when the margins still grow."""
    return solve(MarginSettings(more_steps=1000))


@pytest.mark.long
def test_margins_after_training_equal_those_of_an_independent_implementation() -> None:
    expected = {0.0: [0.96, 0.55, 0.26, 0.14], 0.1: [0.72, 0.52, 0.50, 0.49], 1.0: [0.59, 0.50, 0.50, 0.50]}
    final = solve(MarginSettings()).final
    for lam, margins in expected.items():
        assert final[lam] == pytest.approx(margins, abs=0.01)


def test_every_claim_holds_but_theorem_a_1(solved: MarginResult) -> None:
    verdicts = {claim.claim: claim.verdict for claim in claims(solved)}
    assert verdicts == {"1.10": "holds", "1.11": "holds", "1.16": "does not hold"}


def test_after_equal_numbers_of_steps_the_margin_is_proportional_to_tau(solved: MarginResult) -> None:
    in_taus = solved.equal.margin[-1] / np.array(solved.settings.taus)
    assert solved.equal.steps[-1] == 3000
    assert in_taus == pytest.approx([5.61] * 4, abs=0.005)


def test_claim_1_10_fails_if_the_margin_does_not_depend_on_tau(solved: MarginResult) -> None:
    """All margins are equal and below gamma/2, so only the check of margin / tau can fail."""
    flat = replace(solved, final=solved.final | {0.0: np.full(len(solved.settings.taus), 0.24)})
    assert claims(flat)[0].verdict == "does not hold"


def test_unique_features_do_not_lower_the_margin() -> None:
    taus, steps = (0.05, 0.02), {"equal_steps": 200, "first_steps": 1, "more_steps": 10}  # the minimum needs no descent
    settings = MarginSettings(xi=0.5, zeta=0.5, taus=taus, lambdas=(1.0,), **steps)
    assert solve(settings).final[1.0] == pytest.approx([0.50, 0.50], abs=0.01)


@pytest.mark.parametrize("features", [(0.0, 0.0), (0.5, 0.3)])
def test_gradient_equals_the_finite_differences_of_a_loss_in_plain_loops(features: tuple[float, float]) -> None:
    pairs = with_unique_features(equiangular(3, 0.7), *features)
    n, tau, lam = len(pairs.z), 0.3, 0.2
    rng = np.random.default_rng(0)
    W, direction = rng.standard_normal((2, pairs.y.shape[1], pairs.x.shape[1]))

    def loss(W: Array) -> float:
        f = [[float(pairs.y[j] @ W @ pairs.x[i]) for j in range(n)] for i in range(n)]
        total = 0.0
        for i in range(n):
            total += np.log(sum(np.exp((f[i][j] - f[i][i]) / tau) for j in range(n))) / n
            total += np.log(sum(np.exp((f[j][i] - f[i][i]) / tau) for j in range(n))) / n
            total += lam * float(((W @ pairs.x[i] - pairs.y[i]) ** 2).sum()) / n
        return float(total)

    slope = (loss(W + 1e-5 * direction) - loss(W - 1e-5 * direction)) / 2e-5
    found = gradient(W[None], pairs, np.array([tau]), np.array([lam]))[0]
    assert (found * direction).sum() == pytest.approx(slope, rel=1e-7)


def test_the_margin_ignores_pairs_of_the_same_class() -> None:
    pairs = with_unique_features(equiangular(3, 0.5), 1.0, 1.0)
    W = np.eye(4)
    W[3, 3] = 0.0  # ignores the unique features
    assert margin(W, pairs) == pytest.approx(0.5)


@pytest.mark.parametrize("K", [2, 3, 6])
@pytest.mark.parametrize("score", SCORES)
def test_error_of_the_square_loss_equals_the_error_in_the_proof(K: int, score: str) -> None:
    """With one close pair the error is exactly 2/K * 1/3 * 2/3, which is above 1/(3K)."""
    v = one_close_pair(K, 0.3)
    assert top1_error(bayes_optimum(v), v, SCORES[score]) == pytest.approx(4 / (9 * K), abs=1e-12)


def test_both_rates_equal_the_shares_in_a_random_sample() -> None:
    v, p, draws = equiangular(3, 0.3), np.array([0.5, 0.3, 0.2]), 400_000
    rng = np.random.default_rng(0)
    z = rng.choice(3, (2, draws), p=p)  # of (x, y) and of (x', y')
    n_x, n_y = SIGMA * rng.standard_normal((2, 2, draws))
    dots = v @ v.T
    f = dots[z[0], z[0]] + n_x[0] + n_y[0]
    other_text, other_image = dots[z[0], z[1]] + n_x[0] + n_y[1], dots[z[1], z[0]] + n_x[1] + n_y[0]
    for gamma in (0.0, 0.1, 0.4):
        missed = (f - other_text <= gamma).astype(float) + (f - other_image <= gamma)
        alpha, alpha_hat = (float(r[0]) for r in failure_rates(v, p, np.array([gamma])))
        assert alpha_hat == pytest.approx(missed.mean(), abs=0.01)
        assert alpha == pytest.approx((missed * (z[0] != z[1])).mean(), abs=0.01)


def test_the_upper_bound_holds_and_the_lower_bound_fails_for_positive_gamma() -> None:
    smallest, at_zero, largest = failure_rate_checks(equiangular(6, 0.5))
    assert (smallest.verdict, at_zero.verdict, largest.verdict) == ("holds", "holds", "does not hold")
    assert largest.measured == pytest.approx(2.0), "alpha-hat - alpha reaches 2 sum p^2 at a large gamma"
