"""Claim 2.4 (Example 1 of paper 2) against an independent implementation."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from clipx.theory.claims import FAILS, HOLDS
from clipx.theory.paper2 import robust_g
from clipx.theory.paper2.robust_g import G, RobustGSettings, minimise

ORIGINAL = RobustGSettings()


def test_half_of_the_answers_are_wrong_at_the_minimum_of_log1p() -> None:
    found = minimise("log1p", ORIGINAL, ORIGINAL.mislabelled)
    assert found.error == pytest.approx(0.4995, abs=1e-9)
    assert found.loss == pytest.approx(0.346485, abs=1e-5)
    assert found.abc.tolist() == pytest.approx([-3.70e-6, 5.60e-6, -0.98e-6], abs=0.005e-6)


def test_the_printed_signs_are_not_the_minimum() -> None:
    """The paper prints (3.7e-6, -5.6e-6, 0.8e-7), but the error it prints, 0.4995, is that of the opposite signs."""
    p, tau = robust_g.probabilities(ORIGINAL.mislabelled), ORIGINAL.tau
    printed = np.array([3.7e-6, -5.6e-6, 0.8e-7]) / tau
    found = minimise("log1p", ORIGINAL, ORIGINAL.mislabelled)
    assert robust_g.top1_error(printed, p) == pytest.approx(0.5005, abs=1e-9)
    assert robust_g.loss(printed, G["log1p"], p) > found.loss + 1e-4


def test_no_small_step_from_the_minimum_of_log1p_lowers_its_loss() -> None:
    found = minimise("log1p", ORIGINAL, ORIGINAL.mislabelled)
    p, w = robust_g.probabilities(ORIGINAL.mislabelled), found.abc / ORIGINAL.tau
    steps = np.random.default_rng(0).standard_normal((200, 3)) * 1e-3
    assert all(robust_g.loss(w + step, G["log1p"], p) >= found.loss for step in steps)


@pytest.mark.parametrize("seed", range(3))
def test_the_minimum_of_the_ratio_does_not_depend_on_the_starts(seed: int) -> None:
    found = minimise("ratio", RobustGSettings(seed=seed), ORIGINAL.mislabelled)
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
    result = replace(robust_g.solve(RobustGSettings(sweep=2)), settings=ORIGINAL)
    assert [c.verdict for c in robust_g.claims(result)] == [HOLDS]
    wrong = replace(result.minima["log1p"], loss=0.3465)
    found = robust_g.claims(replace(result, minima=result.minima | {"log1p": wrong}))
    assert [c.verdict for c in found] == [FAILS]
