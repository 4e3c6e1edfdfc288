"""Estimates against textbook formulas and against permutations by hand."""

import itertools

import numpy as np
import pytest
from scipy import stats

from evaluation.claims.measures import GAP, RECALL_1
from evaluation.claims.types import more, rises_over_arms, trend, unrelated_over_arms
from evaluation.claims.verdict import mean_estimate, null_correlations, rank_estimate, reliability

MANY = tuple(map(str, range(26)))


def test_paired_t_agrees_with_scipy() -> None:
    effects = [0.3, 0.1, 0.4, 0.2, 0.25]
    found = mean_estimate(more("a", "b", GAP, 0.05), effects, 0.005)
    expected = stats.ttest_1samp(effects, 0.05, alternative="greater")
    assert found.p_above == pytest.approx(expected.pvalue) and found.p_below == pytest.approx(1 - expected.pvalue)
    interval = stats.ttest_1samp(effects, 0.0).confidence_interval(0.99)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    above_minus_least = stats.ttest_1samp(effects, -0.05, alternative="greater").pvalue
    assert found.p_inside == pytest.approx(max(found.p_below, above_minus_least))


def test_noise_of_the_seeds_lowers_the_reliability_of_arms() -> None:
    draw = np.random.default_rng(0)
    arms, seeds = draw.normal(0, 1, (2000, 1)), 10 * draw.normal(0, 1, (1, 3))  # effects of arms and of seeds
    noise = draw.normal(0, 1, (2000, 3))
    assert reliability(arms + seeds + 0.1 * noise) == pytest.approx(1 / (1 + 0.01 / 3), abs=0.01)
    assert reliability(arms + seeds + 2.0 * noise) == pytest.approx(1 / (1 + 4 / 3), abs=0.05)
    assert reliability(np.zeros((5, 3))) == 0.0


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
    rises = rises_over_arms(MANY, GAP, RECALL_1, "r")
    perfect, none, against = (rank_estimate(rises, rho, 26, 0.025) for rho in (1.0, 0.1, -1.0))
    assert perfect.p_above < 0.001 and against.p_below < 0.001 and min(none.p_above, none.p_below) > 0.3
    weak = unrelated_over_arms(MANY, GAP, RECALL_1, 0.7, "r")
    assert rank_estimate(weak, 0.0, 8, 0.025).p_above > 0.025, "eight arms cannot exclude 0.7"
    wide = rank_estimate(weak, 0.0, 26, 0.025)
    assert wide.p_above < 0.025 and wide.low > -0.7 and wide.high == 0.0
    assert rank_estimate(weak, -0.98, 26, 0.025).p_below < 0.025
    assert rank_estimate(weak, 0.7, 26, 0.025).p_above == pytest.approx(0.5)
