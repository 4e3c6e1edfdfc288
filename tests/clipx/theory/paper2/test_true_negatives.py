"""Claim 2.5 (Example 2 of paper 2) against an independent implementation."""

import math
from itertools import product

import numpy as np
import pytest

from clipx.theory.claims import FAILS, HOLDS
from clipx.theory.paper2 import true_negatives
from clipx.theory.paper2.true_negatives import (
    THETA,
    TrueNegativesResult,
    TrueNegativesSettings,
    expected,
    pairwise_losses,
    probabilities,
    texts,
    top1_error,
)
from clipx.theory.paper2.true_negatives_figure import largest_p2


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
    assert [c.verdict for c in true_negatives.claims(example_2)] == [HOLDS]
    common = true_negatives.solve(TrueNegativesSettings(p2=0.05, p2_grid=2, theta0_grid=2))
    assert [c.verdict for c in true_negatives.claims(common)] == [FAILS]
    for landscape in common.landscapes.values():
        assert 0.65 <= THETA[landscape.clip.argmin()] <= 0.87


def test_the_boundary_lies_between_a_p2_of_one_and_of_five_per_cent(example_2: TrueNegativesResult) -> None:
    for errors in example_2.grid_errors.values():
        boundary = largest_p2(errors, example_2.p2)
        assert 0.01 < np.interp(np.pi / 12, example_2.theta0, boundary) < 0.05


def test_population_loss_equals_the_sum_over_two_draws_in_plain_loops() -> None:
    theta0, tau, p2, at = 0.2, 0.3, 0.1, 1700
    p, y, x = probabilities(np.array(p2)), texts(theta0), true_negatives.X
    clip = negatives = 0.0
    for i, j in product(range(4), repeat=2):
        f = [[x[a] * math.cos(y[b] + THETA[at]) / tau for b in (i, j)] for a in (i, j)]
        text = math.log(1 + math.exp(f[0][1] - f[0][0]))
        clip += p[i] * p[j] * (text + math.log(1 + math.exp(f[1][0] - f[0][0])))
        negatives += p[i] * p[j] * text * (x[i] != x[j])
    found = [expected(pairwise, p)[at] for pairwise in pairwise_losses(theta0, tau)]
    assert found == pytest.approx([clip, negatives], rel=1e-12)


def test_the_error_at_an_angle_of_zero_is_the_share_of_the_rare_text_in_its_class() -> None:
    near, far = np.abs(THETA).argmin(), np.abs(THETA - np.pi / 2).argmin()
    assert top1_error(0.2, np.array(0.1))[[near, far]] == pytest.approx([0.1 / 0.9, 0])
