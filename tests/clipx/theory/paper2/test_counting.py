"""Claims 2.4 and 2.5 (examples 1 and 2 of paper 2) with the numbers of an independent check."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from clipx.errors import UserError
from clipx.theory.claims import FAILS, HOLDS
from clipx.theory.experiment import parse
from clipx.theory.paper2 import robust_g, true_negatives
from clipx.theory.paper2.robust_g import RobustGSettings, minimise
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

ORIGINAL = RobustGSettings()


def test_log1p_ends_where_half_the_answers_are_wrong() -> None:
    found = minimise("log1p", ORIGINAL, ORIGINAL.mislabelled)
    assert found.error == pytest.approx(0.4995, abs=1e-9)
    assert found.loss == pytest.approx(0.346485, abs=1e-5)
    assert abs(found.abc[0]) == pytest.approx(3.70e-6, abs=0.005e-6)
    assert abs(found.abc[1]) == pytest.approx(5.60e-6, abs=0.005e-6)


def test_log1p_minimum_does_not_depend_on_the_solver() -> None:
    """It is convex: no small step from the minimum lowers it."""
    found = minimise("log1p", ORIGINAL, ORIGINAL.mislabelled)
    p, w = robust_g.probabilities(ORIGINAL.mislabelled), found.abc / ORIGINAL.tau
    steps = np.random.default_rng(0).standard_normal((200, 3)) * 1e-3
    assert all(robust_g.loss(w + step, robust_g.log1p, p) >= found.loss for step in steps)


@pytest.mark.parametrize("seed", range(3))
def test_ratio_finds_the_solution_from_any_draw_of_starts(seed: int) -> None:
    found = minimise("ratio", RobustGSettings(seed=seed), ORIGINAL.mislabelled)
    assert found.error <= 0.1  # the paper's bound
    assert found.error == pytest.approx(0.001, abs=1e-9)
    assert found.loss == pytest.approx(0.0005, abs=1e-6)


def test_losses_of_the_papers_good_solution() -> None:
    p, star = robust_g.probabilities(0.002), robust_g.F_STAR / 5e-5
    assert robust_g.loss(star, robust_g.log1p, p) == pytest.approx(10.005, abs=1e-3)
    assert robust_g.loss(star, robust_g.ratio, p) == pytest.approx(0.000523, abs=1e-6)


def test_loss_is_the_mean_over_two_draws_written_with_loops() -> None:
    p, w = robust_g.probabilities(0.2), np.array([0.7, -0.4, 0.1])
    total = 0.0
    for i, j in product(range(5), repeat=2):  # f(x_i, y) = y h(x_i); the pair j gives the other text
        if robust_g.SIGN[i] != robust_g.SIGN[j]:
            y, other = robust_g.SIGN[i] / 2, robust_g.SIGN[j] / 2
            h = float(robust_g.X[i] @ w)
            total += p[i] * p[j] * math.log1p(math.exp(other * h - y * h))
    assert robust_g.loss(w, robust_g.log1p, p) == pytest.approx(total, rel=1e-12)


def test_claim_2_4_holds() -> None:
    assert [c.verdict for c in robust_g.claims(robust_g.solve(RobustGSettings(sweep=2)))] == [HOLDS]


def test_a_wrong_minimum_of_log1p_decides_against_claim_2_4() -> None:
    """Its loss must be the paper's, not only below that of f*."""
    result = replace(robust_g.solve(RobustGSettings(sweep=2)), settings=ORIGINAL)
    assert [c.verdict for c in robust_g.claims(result)] == [HOLDS]
    wrong = replace(result.minima["log1p"], loss=0.3465)
    found = robust_g.claims(replace(result, minima=result.minima | {"log1p": wrong}))
    assert [c.verdict for c in found] == [FAILS]


@pytest.fixture(scope="module")
def example_2() -> TrueNegativesResult:
    return true_negatives.solve(TrueNegativesSettings(p2_grid=40, theta0_grid=8))


@pytest.mark.parametrize(("tau", "theta"), [(0.02, 0.016), (0.05, 0.039), (0.2, 0.174)])
def test_clip_is_lowest_where_the_rare_class_is_lost(example_2: TrueNegativesResult, tau: float, theta: float) -> None:
    at = example_2.landscapes[tau].clip.argmin()
    assert THETA[at] == pytest.approx(theta, abs=0.0015)  # the grid's step is 0.0022
    assert example_2.error[at] == pytest.approx(0.01 / 0.99)


def test_true_negatives_are_lowest_where_nothing_is_lost(example_2: TrueNegativesResult) -> None:
    at = example_2.landscapes[0.02].true_negatives.argmin()
    assert THETA[at] == pytest.approx(1.048, abs=0.0015)
    assert example_2.error[at] == 0
    star = np.abs(THETA - (np.pi / 2 - 5 / 2 * np.pi / 12)).argmin()
    assert THETA[star] == pytest.approx(0.916, abs=0.0015)
    assert example_2.error[star] == 0


def test_claim_2_5_holds_at_one_per_cent_and_not_at_five(example_2: TrueNegativesResult) -> None:
    assert [c.verdict for c in true_negatives.claims(example_2)] == [HOLDS]
    common = true_negatives.solve(TrueNegativesSettings(p2=0.05, p2_grid=2, theta0_grid=2))
    assert [c.verdict for c in true_negatives.claims(common)] == ["does not hold"]
    for landscape in common.landscapes.values():
        assert 0.65 <= THETA[landscape.clip.argmin()] <= 0.87


def test_boundary_lies_between_the_two_points_that_were_checked(example_2: TrueNegativesResult) -> None:
    for tau, clip in example_2.clip_error.items():
        boundary = largest_p2(clip, example_2.true_negatives_error[tau], example_2.p2)
        assert 0.01 < np.interp(np.pi / 12, example_2.theta0, boundary) < 0.05


def test_population_loss_is_the_sum_over_two_draws_written_with_loops() -> None:
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


def test_error_near_zero_is_the_rare_text_among_the_common_class() -> None:
    near, far = np.abs(THETA).argmin(), np.abs(THETA - np.pi / 2).argmin()
    assert top1_error(0.2, np.array(0.1))[[near, far]] == pytest.approx([0.1 / 0.9, 0])


BAD = {
    RobustGSettings: {"tau": "0", "mislabelled": "1", "starts": "0", "sweep": "1"},
    TrueNegativesSettings: {"p2": "0.25", "theta0": "0.4", "taus": "-0.1", "p2_grid": "1"},
}


@pytest.mark.parametrize(("schema", "key"), [(schema, key) for schema, keys in BAD.items() for key in keys])
def test_settings_that_make_no_problem_are_named(schema: type, key: str) -> None:
    with pytest.raises(UserError, match=f"^{key}={BAD[schema][key]} is out of range; allowed: "):
        parse(schema, {key: BAD[schema][key]})
