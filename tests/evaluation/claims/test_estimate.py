"""Estimates against textbook formulas and against permutations by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from evaluation.claims.comparisons import more, rises_over_arms, trend, unrelated_over_arms
from evaluation.claims.estimate import POOL_ABOVE, mean_estimate, null_correlations, pooled_spread, rank_estimate
from evaluation.claims.names import GAP, RECALL_1

EIGHT = tuple(map(str, range(8)))


def test_paired_t_agrees_with_scipy() -> None:
    effects = [0.3, 0.1, 0.4, 0.2, 0.25]
    found = mean_estimate(more("a", "b", GAP, 0.05), effects, 0.005)
    expected = stats.ttest_1samp(effects, 0.05, alternative="greater")
    assert found.p_above == pytest.approx(expected.pvalue) and found.p_below == pytest.approx(1 - expected.pvalue)
    interval = stats.ttest_1samp(effects, 0.0).confidence_interval(0.99)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    minus = stats.ttest_1samp(effects, -0.05, alternative="greater").pvalue
    assert found.p_inside == pytest.approx(max(found.p_below, minus))


def residual_variance(arms: np.ndarray) -> float:
    """Residual mean square of arms x seeds without interaction, by least squares on indicator columns."""
    a, n = arms.shape
    design = np.array([[*np.eye(a)[i], *np.eye(n)[j]] for i, j in itertools.product(range(a), range(n))])
    y = arms.ravel()
    fitted = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return float(((y - fitted) ** 2).sum() / ((a - 1) * (n - 1)))


def test_pooled_spread_is_the_residual_mean_square_of_the_two_way_layout() -> None:
    draw = np.random.default_rng(5)
    for _ in range(50):
        arms = draw.normal(size=(5, 3)) + 10 * draw.normal(size=3)
        spread, df = pooled_spread((1.0, -1.0), arms)
        effects = arms[0] - arms[1]
        if df == 8:
            assert spread == pytest.approx(math.sqrt(2 * residual_variance(arms)))
        else:
            assert spread == pytest.approx(effects.std(ddof=1)) and df == 2


def test_a_contrast_that_varies_more_than_the_other_arms_keeps_its_own_spread() -> None:
    draw = np.random.default_rng(0)
    arms = draw.normal(size=(6, 8)) * np.array([[5.0], [5.0], [1.0], [1.0], [1.0], [1.0]])
    assert pooled_spread((1.0, -1.0), arms)[1] == 7
    quiet = draw.normal(size=(6, 8)) * np.array([[0.2], [0.2], [1.0], [1.0], [1.0], [1.0]])
    assert pooled_spread((1.0, -1.0), quiet)[1] == 35


def test_the_test_of_equal_variances_does_not_see_the_effect() -> None:
    draw = np.random.default_rng(1)
    for _ in range(20):
        arms = draw.normal(size=(4, 3))
        moved = arms + np.array([[100.0], [0.0], [-5.0], [2.0]]) + draw.normal(size=3) * 50
        assert pooled_spread((1.0, -1.0), arms) == pytest.approx(pooled_spread((1.0, -1.0), moved))


def test_variances_are_pooled_in_the_expected_share_of_equal_arms() -> None:
    draw = np.random.default_rng(2)
    pooled = sum(pooled_spread((1.0, -1.0), draw.normal(size=(5, 3)))[1] == 8 for _ in range(2000))
    assert pooled / 2000 == pytest.approx(1 - POOL_ABOVE, abs=0.035)


def test_a_trend_is_the_least_squares_slope() -> None:
    positions, values = {"a": -2.0, "b": -1.0, "c": 0.5}, [0.7, 0.4, 0.1]
    comparison = trend(positions, GAP, "gap", sign=-1)
    slope = stats.linregress(list(positions.values()), values).slope
    assert comparison.effect([(value,) for value in values]) == pytest.approx(-slope)
    assert sum(comparison.contrast) == pytest.approx(0.0)


def test_the_null_distribution_is_that_of_permuted_arms() -> None:
    ranks = np.arange(5) - 2.0
    exact = [float(ranks @ np.array(order) / (ranks @ ranks)) for order in itertools.permutations(ranks)]
    sampled = null_correlations(5)
    for value in (-0.9, 0.0, 0.5, 0.9, 1.0):
        assert np.mean(sampled >= value - 1e-9) == pytest.approx(np.mean(np.array(exact) >= value - 1e-9), abs=0.006)


def test_rank_statements_need_enough_arms_and_a_clear_order() -> None:
    rises = rises_over_arms(EIGHT, GAP, RECALL_1, "r")
    perfect, none, against = (rank_estimate(rises, rho, 8, 0.005) for rho in (1.0, 0.1, -1.0))
    assert perfect.p_above < 0.001 and against.p_below < 0.001 and min(none.p_above, none.p_below) > 0.3
    weak = unrelated_over_arms(EIGHT, GAP, RECALL_1, 0.7, "r")
    assert rank_estimate(weak, 0.0, 8, 0.005).p_above > 0.005, "eight arms cannot exclude 0.7"
    wide = rank_estimate(weak, 0.0, 26, 0.005)
    assert wide.p_above < 0.005 and wide.low > -0.7 and wide.high == 0.0
    assert rank_estimate(weak, -0.98, 26, 0.005).p_below < 0.005
