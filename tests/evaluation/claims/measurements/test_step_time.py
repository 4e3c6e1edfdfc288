"""Ratios of step times, on synthetic times: no clock and no machine is involved."""

import math
import random
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from evaluation.claims.measurements.step_time import RelativeStepTime, time_in_turns

Steps = dict[str, Callable[[], float]]


def noisy(seed: int, ratio: float, disturbed: float = 0.0) -> Steps:
    """Return steps of 1 s and `ratio` s with 5% noise; a share `disturbed` of the steps takes three times as long."""
    draw = random.Random(seed)

    def step(seconds: float) -> float:
        return seconds * draw.lognormvariate(0, 0.05) * (3 if draw.random() < disturbed else 1)

    return {"clip": lambda: step(1.0), "arm": lambda: step(ratio)}


def slowing(ratio: float) -> Steps:
    """Return steps of a machine that slows down: each step takes 1% longer than the step before, in all arms."""
    elapsed = count()
    return {"clip": lambda: 1.01 ** next(elapsed), "arm": lambda: ratio * 1.01 ** next(elapsed)}


def measure(steps: Steps, bound: float | None, blocks: int) -> tuple[RelativeStepTime, int]:
    """Time the steps without a time limit; return the cost of `arm` and the number of blocks."""
    costs, times = time_in_turns(steps, "clip", bound, seconds=1, blocks=blocks, clock=lambda: 0.0)
    assert list(costs) == ["arm"]
    return costs["arm"], len(times["clip"])


@pytest.mark.parametrize("disturbed", [0.0, 0.2])
def test_a_known_ratio_is_recovered(disturbed: float) -> None:
    found, blocks = measure(noisy(0, 1.2, disturbed), None, 400)
    assert blocks == 400
    assert found.low < 1.2 < found.high
    assert found.low < found.ratio < found.high
    assert found.high - found.low < 0.05


@pytest.mark.parametrize(("bound", "verdict"), [(1.6, "holds"), (1.2, "undecided"), (0.9, "does not hold")])
def test_the_verdict_compares_the_interval_with_the_bound(bound: float, verdict: str) -> None:
    found, blocks = measure(noisy(1, 1.2), bound, 35)
    assert found.verdict(bound) == verdict
    assert blocks == (35 if verdict == "undecided" else 10), "the first look must end the timing if it decides"
    few, _ = measure(noisy(0, 5.0), bound, 2)
    assert few.verdict(bound) == "undecided" and few.interval == ""


def test_intervals_widen_with_the_number_of_looks() -> None:
    """The same 20 ratios, judged without a bound (a single look), and with a bound at the second look."""
    one, _ = measure(noisy(2, 1.2), None, 20)
    two, blocks = measure(noisy(2, 1.2), 1.2, 20)
    assert blocks == 20 and one.ratio == two.ratio
    assert two.low < one.low and one.high < two.high


@pytest.mark.long
def test_stopping_at_a_look_does_not_raise_the_error_rate() -> None:
    """The ratio equals the bound: plain 95% intervals at four looks would err in about 5% in each direction."""
    verdicts = [measure(noisy(seed, 1.1), 1.1, 80)[0].verdict(1.1) for seed in range(400)]
    most = 400 * 0.025 + 3 * math.sqrt(400 * 0.025)  # three standard deviations above the expected number
    assert verdicts.count("holds") <= most
    assert verdicts.count("does not hold") <= most


def test_drift_of_the_machine_does_not_bias_the_ratio() -> None:
    for ratio in (1.0, 1.3):
        found, _ = measure(slowing(ratio), None, 100)
        assert found.low <= ratio <= found.high
        assert found.ratio == pytest.approx(ratio, rel=0.0101)


def test_every_block_times_every_arm_once_in_changing_order() -> None:
    called: list[str] = []

    def step(arm: str) -> float:
        called.append(arm)
        return float(len(called))

    arms = ("clip", "a", "b")
    costs, times = time_in_turns({arm: partial(step, arm) for arm in arms}, "clip", None, 1, 30, lambda: 0.0)
    blocks = [called[i : i + 3] for i in range(0, 90, 3)]
    assert all(sorted(block) == sorted(arms) for block in blocks)
    assert {block[0] for block in blocks} == set(arms)
    assert list(costs) == ["a", "b"] and {len(of_arm) for of_arm in times.values()} == {30}


def test_timing_ends_with_the_block_in_which_the_time_runs_out() -> None:
    now = count(step=10)
    _, times = time_in_turns(noisy(0, 1.0), "clip", 1.0, 35, 1000, lambda: float(next(now)))
    assert len(times["clip"]) == 4
