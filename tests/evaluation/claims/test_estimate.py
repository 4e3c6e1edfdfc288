"""Estimates against textbook formulas and against permutations by hand."""

import itertools

import numpy as np
import pytest
from scipy import stats

from evaluation.claims.comparisons import differs, more, rises_over_arms, trend, unrelated_over_arms
from evaluation.claims.estimate import mean_estimate, null_correlations, rank_estimate, reliability
from evaluation.claims.names import GAP, RECALL_1
from evaluation.claims.power import seeds_needed
from evaluation.claims.verdict import verdict_of

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


@pytest.mark.parametrize(
    ("mean", "verdict"), [(0.05, "holds"), (-0.05, "holds"), (0.0, "equivalent"), (0.012, "undecided")]
)
def test_a_two_sided_claim_holds_in_both_directions(mean: float, verdict: str) -> None:
    effects = [mean + noise for noise in (-0.002, -0.001, 0.0, 0.001, 0.002)]
    found = mean_estimate(differs("a", "b", (GAP,), 0.01, ""), effects, 0.005)
    assert verdict_of(found, 0.005) == verdict
    above = stats.ttest_1samp(effects, 0.01, alternative="greater").pvalue
    below = stats.ttest_1samp(effects, -0.01, alternative="less").pvalue
    assert found.p_above == pytest.approx(min(above, below))
    assert found.p_below == found.p_inside == pytest.approx(max(1 - above, 1 - below))


def test_a_negative_effect_of_a_two_sided_claim_needs_as_many_seeds_as_a_positive_one() -> None:
    comparison = differs("a", "b", (GAP,), 0.01, "")
    effects = [0.00, 0.02, 0.05]
    up, down = (mean_estimate(comparison, [sign * effect for effect in effects], 0.005) for sign in (1, -1))
    assert seeds_needed(up, 0.01, 3, 0.005) == seeds_needed(down, 0.01, 3, 0.005)


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
