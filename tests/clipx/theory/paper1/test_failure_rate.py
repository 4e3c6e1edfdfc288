"""Theorem A.1: the closed forms against draws, and which half of the theorem is wrong."""

import numpy as np
import pytest

from clipx.theory.claims import FAILS, HOLDS
from clipx.theory.paper1 import case_study, failure_rate
from clipx.theory.paper1.failure_rate import SIGMA, checks, rates


def test_both_rates_equal_the_shares_in_a_random_sample() -> None:
    v, p, draws = case_study.equiangular(3, 0.3), np.array([0.5, 0.3, 0.2]), 400_000
    rng = np.random.default_rng(0)
    z = rng.choice(3, (2, draws), p=p)  # of (x, y) and of (x', y')
    n_x, n_y = SIGMA * rng.standard_normal((2, 2, draws))
    dots = v @ v.T
    f = dots[z[0], z[0]] + n_x[0] + n_y[0]
    other_text, other_image = dots[z[0], z[1]] + n_x[0] + n_y[1], dots[z[1], z[0]] + n_x[1] + n_y[0]
    for gamma in (0.0, 0.1, 0.4):
        missed = (f - other_text <= gamma).astype(float) + (f - other_image <= gamma)
        alpha, alpha_hat = (float(r[0]) for r in rates(v, p, np.array([gamma])))
        assert alpha_hat == pytest.approx(missed.mean(), abs=0.01)
        assert alpha == pytest.approx((missed * (z[0] != z[1])).mean(), abs=0.01)


def test_the_upper_bound_holds_and_the_lower_bound_fails_for_positive_gamma() -> None:
    smallest, at_zero, largest = checks(case_study.equiangular(6, 0.5))
    assert (smallest.verdict, at_zero.verdict, largest.verdict) == (HOLDS, HOLDS, FAILS)
    assert largest.measured == pytest.approx(2.0), "alpha-hat - alpha reaches 2 sum p^2 at a large gamma"


def test_the_distance_grows_with_gamma_from_one_to_two_collision_probabilities() -> None:
    p = np.full(4, 0.25)
    alpha, alpha_hat = rates(case_study.equiangular(4, 0.5), p, failure_rate.GAMMAS)
    distance = alpha_hat - alpha
    assert np.diff(distance).min() >= -1e-12
    assert distance[0] == pytest.approx(0.25) and distance[-1] == pytest.approx(0.5)
