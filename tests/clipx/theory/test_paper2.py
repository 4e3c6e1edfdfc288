"""Claims 2.4 and 2.5 (Examples 1 and 2 of paper 2) against independent implementations."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from clipx.theory import paper2_robust_g as robust_g
from clipx.theory import paper2_true_negatives as true_negatives
from clipx.theory.paper2_robust_g import G, RobustGSettings, minimise
from clipx.theory.paper2_true_negatives import THETA, TrueNegativesResult, TrueNegativesSettings, largest_p2

ORIGINAL = RobustGSettings()


def test_the_printed_signs_are_not_the_minimum() -> None:
    """The paper prints (3.7e-6, -5.6e-6, 0.8e-7), but the error it prints, 0.4995, is that of the opposite signs."""
    p, tau = robust_g.probabilities(ORIGINAL.mislabelled), ORIGINAL.tau
    printed = np.array([3.7e-6, -5.6e-6, 0.8e-7]) / tau
    found = minimise("log1p", ORIGINAL, ORIGINAL.mislabelled)
    assert found.abc.tolist() == pytest.approx([-3.70e-6, 5.60e-6, -0.98e-6], abs=0.005e-6)
    assert robust_g.top1_error(printed, p) == pytest.approx(0.5005, abs=1e-9)
    assert robust_g.loss(printed, G["log1p"], p) > found.loss + 1e-4


def test_the_minimum_of_the_ratio_does_not_depend_on_the_starts() -> None:
    found = minimise("ratio", RobustGSettings(seed=1), ORIGINAL.mislabelled)
    assert found.error <= 0.1  # the paper's bound
    assert found.error == pytest.approx(0.001, abs=1e-9)
    assert found.loss == pytest.approx(0.0005, abs=1e-6)


def test_losses_of_f_star_equal_the_papers() -> None:
    p, star = robust_g.probabilities(0.002), robust_g.F_STAR / 5e-5
    assert robust_g.loss(star, G["log1p"], p) == pytest.approx(10.005, abs=1e-3)
    assert robust_g.loss(star, G["ratio"], p) == pytest.approx(0.000523, abs=1e-6)


def test_loss_equals_the_mean_over_two_draws_in_plain_loops() -> None:
    p, w = robust_g.probabilities(0.2), np.array([0.7, -0.4, 0.1])
    total = 0.0
    for i, j in product(range(5), repeat=2):  # f(x_i, y) = y h(x_i); the other text is that of pair j
        if robust_g.SIGN[i] != robust_g.SIGN[j]:
            y, other = robust_g.SIGN[i] / 2, robust_g.SIGN[j] / 2
            h = float(robust_g.X[i] @ w)
            total += p[i] * p[j] * math.log1p(math.exp(other * h - y * h))
    assert robust_g.loss(w, G["log1p"], p) == pytest.approx(total, rel=1e-12)


def test_claim_2_4_fails_at_a_wrong_minimum_of_log1p() -> None:
    """The loss at the minimum must equal the paper's, not only be smaller than the loss of f*."""
    result = replace(robust_g.solve(RobustGSettings(sweep=2, starts=8)), settings=ORIGINAL)
    assert [c.verdict for c in robust_g.claims(result)] == ["holds"]
    wrong = replace(result.minima["log1p"], loss=0.3465)
    found = robust_g.claims(replace(result, minima=result.minima | {"log1p": wrong}))
    assert [c.verdict for c in found] == ["does not hold"]


@pytest.fixture(scope="module")
def example_2() -> TrueNegativesResult:
    return true_negatives.solve(TrueNegativesSettings(p2_grid=40, theta0_grid=8))


@pytest.mark.parametrize(("tau", "theta"), [(0.02, 0.016), (0.05, 0.039), (0.2, 0.174)])
def test_the_rare_text_is_misclassified_at_the_minimum_of_clip(
    example_2: TrueNegativesResult, tau: float, theta: float
) -> None:
    at = example_2.landscapes[tau].clip.argmin()
    assert THETA[at] == pytest.approx(theta, abs=0.0015)  # the grid's step is 0.0022
    assert example_2.error[at] == pytest.approx(0.01 / 0.99)


def test_the_error_is_0_at_the_minimum_of_the_loss_on_true_negatives(example_2: TrueNegativesResult) -> None:
    at = example_2.landscapes[0.02].true_negatives.argmin()
    assert THETA[at] == pytest.approx(1.048, abs=0.0015)
    assert example_2.error[at] == 0
    star = np.abs(THETA - (np.pi / 2 - 5 / 2 * np.pi / 12)).argmin()
    assert THETA[star] == pytest.approx(0.916, abs=0.0015)
    assert example_2.error[star] == 0


def test_claim_2_5_holds_at_p2_of_one_per_cent_and_fails_at_five(example_2: TrueNegativesResult) -> None:
    assert [c.verdict for c in true_negatives.claims(example_2)] == ["holds"]
    common = true_negatives.solve(TrueNegativesSettings(p2=0.05, p2_grid=2, theta0_grid=2))
    assert [c.verdict for c in true_negatives.claims(common)] == ["does not hold"]
    for landscape in common.landscapes.values():
        assert 0.65 <= THETA[landscape.clip.argmin()] <= 0.87


def test_the_boundary_lies_between_a_p2_of_one_and_of_five_per_cent(example_2: TrueNegativesResult) -> None:
    for errors in example_2.grid_errors.values():
        boundary = largest_p2(errors, example_2.p2)
        assert 0.01 < np.interp(np.pi / 12, example_2.theta0, boundary) < 0.05


def test_population_loss_equals_the_sum_over_two_draws_in_plain_loops() -> None:
    theta0, tau, p2, at = 0.2, 0.3, 0.1, 1700
    p, y, x = true_negatives.probabilities(np.array(p2)), true_negatives.texts(theta0), true_negatives.X
    clip = negatives = 0.0
    for i, j in product(range(4), repeat=2):
        f = [[x[a] * math.cos(y[b] + THETA[at]) / tau for b in (i, j)] for a in (i, j)]
        text = math.log(1 + math.exp(f[0][1] - f[0][0]))
        clip += p[i] * p[j] * (text + math.log(1 + math.exp(f[1][0] - f[0][0])))
        negatives += p[i] * p[j] * text * (x[i] != x[j])
    found = [true_negatives.expected(pairwise, p)[at] for pairwise in true_negatives.pairwise_losses(theta0, tau)]
    assert found == pytest.approx([clip, negatives], rel=1e-12)


def test_the_error_at_an_angle_of_zero_is_the_share_of_the_rare_text_in_its_class() -> None:
    near, far = np.abs(THETA).argmin(), np.abs(THETA - np.pi / 2).argmin()
    assert true_negatives.top1_error(0.2, np.array(0.1))[[near, far]] == pytest.approx([0.1 / 0.9, 0])
