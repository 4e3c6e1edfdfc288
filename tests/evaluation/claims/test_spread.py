"""The interval of a ratio of spreads: against hand-made values, and its error rate in simulated experiments."""

import math
import statistics

import numpy as np
import pytest

from evaluation.statistics import log_spread_ratio


def test_the_effect_is_the_log_of_the_ratio_of_standard_deviations() -> None:
    steady, other = [0.16, 0.162, 0.158], [0.16, 0.2, 0.1]
    effect, low, high = log_spread_ratio(steady, other)
    assert effect == pytest.approx(math.log(statistics.stdev(other) / statistics.stdev(steady)))
    # F(2, 2) has the quantiles q / (1 - q), so its 97.5% quantile is 39
    assert (effect - low, high - effect) == pytest.approx((math.log(39) / 2, math.log(39) / 2))
    turned = log_spread_ratio(other, steady)
    assert turned == pytest.approx((-effect, -high, -low))


def test_a_steady_arm_without_any_spread_gives_no_ratio_and_the_other_none_at_all() -> None:
    assert all(map(math.isnan, log_spread_ratio([0.5, 0.5, 0.5], [0.1, 0.2, 0.3])))
    assert log_spread_ratio([0.1, 0.2, 0.3], [0.5, 0.5, 0.5])[0] == -math.inf


@pytest.mark.parametrize("seeds", [3, 8])
@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_the_interval_contains_the_true_ratio_in_95_of_100_experiments(seeds: int, ratio: float) -> None:
    draw = np.random.default_rng(0)
    experiments = 1000
    misses = {"low": 0, "high": 0}
    for _ in range(experiments):
        steady, other = draw.normal(0.3, 0.01, seeds), draw.normal(0.4, 0.01 * ratio, seeds)
        _, low, high = log_spread_ratio(steady.tolist(), other.tolist())
        misses["low"] += low > math.log(ratio)
        misses["high"] += high < math.log(ratio)
    assert max(misses.values()) <= 0.04 * experiments  # 2.5% on each side
    assert min(misses.values()) >= 0.01 * experiments
