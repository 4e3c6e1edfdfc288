"""Time of a training step relative to a reference arm, from arms that take turns.

A machine's speed changes by more than the differences to measure. So the arms are timed in blocks: one step of each
arm, the reference included, in random order. A block gives one ratio to the reference per arm. Changes between blocks
cancel in the ratio, and changes within a block shift it up as often as down.

Estimate: the median of the ratios, because a step that another process disturbs changes one ratio a lot, but the median
little. Interval: order statistics of the ratios (scipy's quantile_test), valid for any distribution. A t interval of
the log ratios is narrower without disturbed steps, but a single disturbed step makes it much wider.

With a bound, the ratios are looked at after 10, 20, 40, ... blocks and at the end of the time. With A arms besides the
reference, the intervals of look k = 1, 2, ... have a confidence of 1 - 0.05 / (2^k A). So in at least 95% of benchmarks
every interval of every look contains the true ratio. Timing may therefore end at the first look that decides all arms:
at most 5% of benchmarks contain a false verdict.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from clipx.verdict import Verdict, within

FIRST_LOOK = 10  # blocks
# probability that any interval of any look misses the true ratio; if no bound is given: that a single interval does
ERROR = 0.05
Times = dict[str, list[float]]  # arm -> seconds of a step in each block


@dataclass(frozen=True)
class RelativeStepTime:
    """The time of an arm's step, and its ratio to the reference with an interval."""

    seconds: float  # median
    ratio: float  # median over the blocks
    low: float  # NaN if there are too few blocks for an interval
    high: float

    def verdict(self, bound: float) -> Verdict:
        """Return the verdict on "ratio <= bound"; undecided if the interval contains the bound or is missing."""
        return within(self.low, self.high, most=bound)

    @property
    def interval(self) -> str:
        """The interval as text; "" if it is missing."""
        return f"[{self.low:.4f}, {self.high:.4f}]" if self.low <= self.high else ""


def time_in_turns(
    steps: Mapping[str, Callable[[], float]],
    reference: str,
    bound: float | None,
    seconds: float,
    blocks: int,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[dict[str, RelativeStepTime], Times]:
    """Time blocks until every ratio is decided, `seconds` have passed or `blocks` are done.

    Returns the cost of each arm except the reference, and all times.

    Args:
        steps: arm -> function that does a step and returns its seconds; must contain the reference.
        bound: largest ratio with the verdict `holds`; None: no ratio is decided, so time until the end.
    """
    times: Times = {arm: [] for arm in steps}
    order, end, looks = random.Random(0), clock() + seconds, 0
    for block in range(1, blocks + 1):
        for arm in order.sample(list(steps), len(steps)):
            times[arm].append(steps[arm]())
        last = block == blocks or clock() >= end
        if last and bound is None:
            return _costs(times, reference, 1 - ERROR), times
        if bound is not None and (last or block == FIRST_LOOK * 2**looks):
            looks += 1
            costs = _costs(times, reference, 1 - ERROR / 2**looks / (len(steps) - 1))
            if last or all(cost.verdict(bound) != "undecided" for cost in costs.values()):
                return costs, times
    raise AssertionError("blocks must be 1 or more")


def _costs(times: Times, reference: str, confidence: float) -> dict[str, RelativeStepTime]:
    from scipy import stats

    costs = {}
    for arm in times:
        if arm == reference:
            continue
        ratios = [a / b for a, b in zip(times[arm], times[reference], strict=True)]
        interval = stats.quantile_test(ratios, p=0.5).confidence_interval(confidence)
        costs[arm] = RelativeStepTime(median(times[arm]), median(ratios), float(interval.low), float(interval.high))
    return costs
