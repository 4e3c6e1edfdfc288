"""Ladders: the same arms and seeds at several points of samples, data, width or batch (`clipx reproduce scale=AXIS`).

A ladder is read from the runs' settings. Its runs share the recipe and the values of all axes but one, and each arm has
a run at every point. The error is 1 - the mean score over the tasks that all runs of the ladder have. A task's score is
its mean over the data sets that all these runs share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from clipx.data.sampler import num_train
from clipx.errors import UserError
from evaluation.analyses.comparison import (
    MEAN,
    MIN_SEEDS,
    SCORES,
    BySeed,
    LeftOut,
    SeedMean,
    paired,
    rankable,
    seed_mean,
    shared_values,
)
from evaluation.analyses.ladder_runs import LadderRuns, Points, find_ladder_runs
from evaluation.analyses.power_law import Array, Interval, PowerLaw, crossover, fit_power_law, prediction
from evaluation.runs.description import last, processor_hours, setting, training_flops
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

AGAINST = {  # quantity on the x axis -> its name in figures
    "samples": "samples seen",
    "flops": "FLOPs of the towers",
    "hours": "hours of training steps x processes",
    "pairs": "training pairs",
    "batch": "batch size",
}
QUANTITIES: dict[str, Callable[[Run], float]] = {  # key of AGAINST -> function that reads it; 0 if a run lacks it
    "samples": lambda run: last(run, "samples") or 0.0,
    "flops": training_flops,
    "hours": processor_hours,
    "pairs": lambda run: float(
        num_train(setting(run, "data", "scenes", "num_train") or 0, setting(run, "data", "held_out") or 0.0)
    ),
    "batch": lambda run: float(setting(run, "train", "batch_size") or 0),
}
# axis -> default quantity
DEFAULT_QUANTITY = {"samples": "samples", "data": "pairs", "width": "flops", "batch": "batch"}
LEAST = 0.01  # smallest effect of interest


@dataclass(frozen=True)
class LargestPoint:
    """The largest point, predicted from the smaller ones."""

    predicted: Interval  # the range in which the mean of the same seeds should lie
    measured: float
    problem: str  # why the law of the smaller points should not be used; "" if it fits

    @property
    def inside(self) -> bool:
        """True if the measured mean lies in the 95% interval."""
        return self.predicted.contains(self.measured)


@dataclass(frozen=True)
class ArmErrors:
    """One arm of a ladder."""

    arm: str
    x: list[float]  # the quantity at each point, mean over the seeds
    errors: list[BySeed]  # seed -> error at each point
    law: PowerLaw | None  # None if there is no fit
    held_out: LargestPoint | None
    problem: str  # why there is no law, or why it should not be used; "" if it fits


@dataclass(frozen=True)
class Gain:
    """An arm against the reference, paired by seed: error of the reference - error of the arm."""

    arm: str
    x: list[float]  # of the reference
    at: list[SeedMean]  # the gain at each point, over the common seeds
    laws: tuple[PowerLaw, PowerLaw] | None  # of the reference and the arm, over their common seeds
    problem: str  # why there are no laws; "" if there are

    @property
    def at_other_x(self) -> bool:
        """True if reference and arm have different x at a point, as FLOPs of different towers."""
        return self.laws is not None and not np.allclose(self.laws[0].x, self.laws[1].x, rtol=0.01)

    @property
    def sign_change(self) -> tuple[float, float] | None:
        """The last two x between which the measured gain changes its sign; gains whose interval has 0 do not count."""
        decided = [(x, one.sign) for x, one in zip(self.x, self.at, strict=True) if one.sign]
        changes = [(x, next_x) for (x, sign), (next_x, next_sign) in pairwise(decided) if sign != next_sign]
        return changes[-1] if changes else None

    @property
    def crossover(self) -> Interval | None:
        """Scale at which the gain changes its sign for the last time; None without laws or without such a change."""
        return crossover(*self.laws) if self.laws else None


@dataclass(frozen=True)
class Ladder:
    """All arms of a recipe along one axis."""

    recipe: str
    axis: str
    others: dict[str, str]  # the other axes and their values
    points: list[str]  # values of the axis, ascending
    against: str  # key of AGAINST
    score: str  # names of the tasks in the error
    reference: str
    arms: list[ArmErrors]
    gains: list[Gain]


def find_ladders(
    runs: list[Run], by: str = MEAN, against: str = "", axis: str = "", reference: str = ""
) -> tuple[list[Ladder], list[str]]:
    """Return the ladders among the runs, and lines about runs, points, arms and ladders that are left out.

    Args:
        by: score, MEAN or a task.
        against: key of AGAINST; "" for the default of each axis (DEFAULT_QUANTITY).
        axis: only ladders along this axis; "" for all.
        reference: arm that the others are compared with; "" for `clip`, or the first arm if there is no `clip`.

    Raises UserError: there are ladders, but none can be used: an unknown reference, no task that all arms share, a
    quantity that does not grow, or a point without a seed that has all tasks.
    """
    ladders, left_out, failures, recipes = [], list[str](), list[str](), set[str]()
    for found in find_ladder_runs(runs, axis):
        recipes.add(found.recipe)
        try:
            ladders.append(_ladder(found, by, against or DEFAULT_QUANTITY[found.axis], reference))
        except UserError as error:
            failures.append(str(error))
        left_out += found.left_out
    paths = [str(run.path) for run in runs if run.diverged and setting(run, "recipe") in recipes]
    diverged = [LeftOut("diverged", paths).line()] if paths else []
    if failures and not ladders:
        raise UserError("; ".join([failures[0], *diverged]))
    left_out += [*diverged, *(f"left out, {reason}" for reason in failures)]
    return ladders, [*dict.fromkeys(left_out)]  # a run may be left out along several axes


def _ladder(found: LadderRuns, by: str, against: str, reference: str) -> Ladder:
    arms, shared = found.arms, [*next(iter(found.arms.values()))]
    if reference and reference not in arms:
        raise UserError(f"{found.name}: reference={reference} is not one of its arms: {', '.join(arms)}")
    reference = reference or ("clip" if "clip" in arms else next(iter(arms)))
    quantity = QUANTITIES[against]
    x_of = {point: fmean(map(quantity, arms[reference][point])) for point in shared}
    points = sorted(shared, key=x_of.__getitem__)
    errors, score = _errors(arms, points, by)
    measured = []
    for arm in arms:
        x = [fmean(map(quantity, arms[arm][point])) for point in points]
        if not all(0 < a < b for a, b in pairwise(x)):
            wrong = f"{found.name}: against={against} does not grow for arm {arm}, or is unknown"
            raise UserError(f"{wrong}: use {DEFAULT_QUANTITY[found.axis]}")
        measured.append(_arm(arm, x, errors[arm]))
    first = next(one for one in measured if one.arm == reference)
    gains = []
    for one in measured:
        try:
            gains += [_gain(first, one)] if one is not first else []
        except UserError as error:
            found.left_out.append(f"left out, {found.name}: {error}")
    return Ladder(found.recipe, found.axis, found.others, points, against, score, reference, measured, gains)


def _errors(arms: dict[str, Points], points: list[str], by: str) -> tuple[dict[str, list[BySeed]], str]:
    groups = [RunGroup(f"{arm} {point}", arms[arm][point]) for arm in arms for point in points]
    readers = rankable([run for group in groups for run in group.runs])
    wanted = SCORES if by == MEAN else {task: reader for task, reader in readers.items() if task == by}
    measured = {task: shared_values(reader, groups) for task, reader in wanted.items()}
    tasks = [task for task, of_groups in measured.items() if all(of_groups)]
    if not tasks:
        raise UserError(f"by={by}: no task has been evaluated at all points of all arms; run clipx eval on the runs")
    errors = [
        {
            seed: 1 - fmean(measured[task][at][seed] for task in tasks)
            for seed in sorted(set.intersection(*(set(measured[task][at]) for task in tasks)))
        }
        for at in range(len(groups))
    ]
    if not all(errors):
        where = groups[errors.index({})].label
        raise UserError(f"{where}: no seed has results of all of {', '.join(tasks)}; run clipx eval on the runs")
    remaining = iter(errors)
    return {arm: [next(remaining) for _ in points] for arm in arms}, ", ".join(tasks)


def _arm(arm: str, x: list[float], errors: list[BySeed]) -> ArmErrors:
    seeds = _common(errors)
    if len(seeds) < MIN_SEEDS:
        return ArmErrors(arm, x, errors, None, None, f"{len(seeds)} seeds at all points, a law needs {MIN_SEEDS}")
    scales, curves = np.array(x), _curves(errors, seeds)
    law = fit_power_law(scales, curves)
    smaller = fit_power_law(scales[:-1], curves[:, :-1])
    predicted = prediction(smaller, x[-1], curves[:, -1])
    held_out = LargestPoint(predicted, float(curves[:, -1].mean()), smaller.problem)
    return ArmErrors(arm, x, errors, law, held_out, law.problem)


def _gain(reference: ArmErrors, arm: ArmErrors) -> Gain:
    at = []
    for ours, theirs in zip(arm.errors, reference.errors, strict=True):
        found = seed_mean(paired(theirs, ours))
        if found is None:
            raise UserError(f"arms {reference.arm} and {arm.arm} have no common seed at a point of their ladder")
        at.append(found)
    seeds = _common([*reference.errors, *arm.errors])
    problems = [f"no law of {one.arm}" for one in (reference, arm) if one.problem]
    if len(seeds) < MIN_SEEDS:
        problems.append(f"{len(seeds)} common seeds, a law needs {MIN_SEEDS}")
    if problems:
        return Gain(arm.arm, reference.x, at, None, problems[0])
    first, second = (fit_power_law(np.array(one.x), _curves(one.errors, seeds)) for one in (reference, arm))
    problem = first.problem or second.problem
    return Gain(arm.arm, reference.x, at, None if problem else (first, second), problem)


def _common(errors: list[BySeed]) -> list[int]:
    return sorted(set.intersection(*(set(by_seed) for by_seed in errors)))


def _curves(errors: list[BySeed], seeds: list[int]) -> Array:
    return np.array([[by_seed[seed] for by_seed in errors] for seed in seeds])
