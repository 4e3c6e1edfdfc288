"""Ladders: the same arms and seeds at several points of samples, data, width or batch (`clipx reproduce scale=AXIS`).

A ladder is read from the runs' settings. Its runs share the recipe and the values of all axes but one, and each arm has
a run at every point. The error is 1 - the mean score over the tasks that all runs of the ladder have. A task's score is
its mean over the data sets that all these runs share.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from clipx.config.ladder import AXES, MIN_POINTS
from clipx.errors import UserError
from evaluation.analyses.comparison import MEAN, TASKS, BySeed, Estimate, estimate, paired, rankable, shared_values
from evaluation.analyses.power_law import MIN_SEEDS, Array, Interval, PowerLaw, crossover, fit_power_law
from evaluation.runs.description import last, processor_hours, setting, settings_text, training_flops
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

AGAINST = {  # quantity on the x axis -> its name in figures
    "samples": "samples seen",
    "flops": "training FLOPs",
    "hours": "hours of training steps x processes",
    "pairs": "training pairs",
    "batch": "batch size",
}
QUANTITIES: dict[str, Callable[[Run], float]] = {  # key of AGAINST -> function that reads it; 0 if a run lacks it
    "samples": lambda run: last(run, "samples") or 0.0,
    "flops": training_flops,
    "hours": processor_hours,
    "pairs": lambda run: float(setting(run, "data", "scenes", "num_train") or 0),
    "batch": lambda run: float(setting(run, "train", "batch_size") or 0),
}
OF_AXIS = {"samples": "samples", "data": "pairs", "width": "flops", "batch": "batch"}  # axis -> default quantity
LEAST = 0.01  # smallest effect of interest
Points = dict[str, list[Run]]  # value of the axis -> runs, one per seed


@dataclass(frozen=True)
class HeldOut:
    """The largest point, predicted from the smaller ones."""

    predicted: Interval  # of the mean over new seeds, as many as in the fit
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
    held_out: HeldOut | None
    problem: str  # why there is no law, or why it should not be used; "" if it fits


@dataclass(frozen=True)
class Gain:
    """An arm against the reference, paired by seed: error of the reference - error of the arm."""

    arm: str
    x: list[float]  # of the reference
    at: list[Estimate]  # the gain at each point, over the common seeds
    # of the reference and the arm, over their common seeds; None if these are too few or one of the two has a `problem`
    laws: tuple[PowerLaw, PowerLaw] | None

    @property
    def crossover(self) -> Interval | None:
        """Scale at which the gain changes its sign for the last time; None without laws or without such a change."""
        return crossover(*self.laws) if self.laws else None


@dataclass(frozen=True)
class Ladder:
    """All arms of a recipe along one axis."""

    recipe: str
    axis: str
    points: list[str]  # values of the axis, ascending
    against: str  # key of AGAINST
    score: str  # names of the tasks in the error
    reference: str
    arms: list[ArmErrors]
    gains: list[Gain]


def find_ladders(
    runs: list[Run], by: str = MEAN, against: str = "", axis: str = "", reference: str = ""
) -> tuple[list[Ladder], list[str]]:
    """Return the ladders among the runs, and lines about arms that are left out.

    Args:
        by: score, MEAN or a task.
        against: key of AGAINST; "" for the default of each axis (OF_AXIS).
        axis: only ladders along this axis; "" for all.
        reference: arm that the others are compared with; "" for `clip`, or the first arm if there is no `clip`.

    Raises UserError: a reference that no ladder has, too few points or no task that all arms of a ladder share, a
    quantity that does not grow, or no common seed.
    """
    ladders, left_out = [], list[str]()
    for (recipe, along, _), arms in _by_axis(runs).items():
        if axis not in ("", along):
            continue
        whole = {arm: points for arm, points in arms.items() if len(points) >= MIN_POINTS}
        for points in whole.values():
            for point, at_point in points.items():
                points[point], others = _same_settings(at_point)
                left_out += [f"left out, other settings or a second run of a seed: {run.path}" for run in others]
        if whole:
            left_out += [
                f"left out, {recipe} along {along}: {arm} has {len(points)} points, a ladder needs {MIN_POINTS}"
                for arm, points in arms.items()
                if arm not in whole
            ]
            if not reference or reference in whole:
                ladders.append(_ladder(recipe, along, whole, by, against or OF_AXIS[along], reference))
    if reference and not ladders:
        raise UserError(f"reference={reference} is an arm of no ladder of these runs")
    return ladders, [*dict.fromkeys(left_out)]  # a run may be left out along several axes


def refuse_short(runs: list[Run], axis: str = "") -> None:
    """Raise UserError; the message names the arm with the most points along `axis` ("": along any axis)."""
    found = [
        (len(points), along, arm)
        for (_, along, _), arms in _by_axis(runs).items()
        for arm, points in arms.items()
        if axis in ("", along)
    ]
    most, along, arm = max(found, default=(0, axis or "samples", "an arm"))
    raise UserError(
        f"no ladder: {arm} has {most} of the {MIN_POINTS} or more points of {along} that it needs (only runs with "
        f"results count); clipx reproduce recipe=R scale={along} trains them"
    )


def _by_axis(runs: list[Run]) -> dict[tuple[str, str, tuple[str, ...]], dict[str, Points]]:
    """Return (recipe, axis, values of the other axes) -> arm -> point -> runs that have results."""
    found: dict[tuple[str, str, tuple[str, ...]], dict[str, Points]] = {}
    for run in runs:
        if not run.config or not run.results or run.diverged:
            continue
        values = {axis: str(setting(run, *keys[0].split("."))) for axis, keys in AXES.items()}
        recipe, arm = str(setting(run, "recipe")), str(setting(run, "arm") or run.name)
        for axis, value in values.items():
            others = tuple(other for name, other in values.items() if name != axis)
            by_point = found.setdefault((recipe, axis, others), {}).setdefault(arm, {})
            by_point.setdefault(value, []).append(run)
    return found


def _same_settings(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """Return the runs of one arm and point with the most frequent settings, one per seed, and the other runs."""
    usual = Counter(map(settings_text, runs)).most_common(1)[0][0]
    by_seed: dict[int, Run] = {}
    for run in runs:
        if settings_text(run) == usual:
            by_seed.setdefault(run.seed, run)
    kept = [*by_seed.values()]
    return kept, [run for run in runs if not any(run is one for one in kept)]


def _ladder(recipe: str, axis: str, arms: dict[str, Points], by: str, against: str, reference: str) -> Ladder:
    shared = set.intersection(*(set(points) for points in arms.values()))
    if len(shared) < MIN_POINTS:
        raise UserError(f"{recipe} along {axis}: the arms share {len(shared)} points, a ladder needs {MIN_POINTS}")
    reference = reference or ("clip" if "clip" in arms else next(iter(arms)))
    quantity = QUANTITIES[against]
    x_of = {point: fmean(map(quantity, arms[reference][point])) for point in shared}
    points = sorted(shared, key=x_of.__getitem__)
    errors, score = _errors(arms, points, by)
    found = []
    for arm in arms:
        x = [fmean(map(quantity, arms[arm][point])) for point in points]
        if not all(0 < a < b for a, b in pairwise(x)):
            raise UserError(
                f"against={against} does not grow along {axis} for arm {arm} of {recipe}: use {OF_AXIS[axis]}"
            )
        found.append(_arm(arm, x, errors[arm]))
    first = next(one for one in found if one.arm == reference)
    gains = [_gain(first, one) for one in found if one is not first]
    return Ladder(recipe, axis, points, against, score, reference, found, gains)


def _errors(arms: dict[str, Points], points: list[str], by: str) -> tuple[dict[str, list[BySeed]], str]:
    groups = [RunGroup(f"{arm} {point}", arms[arm][point]) for arm in arms for point in points]
    readers = rankable([run for group in groups for run in group.runs])
    wanted = TASKS if by == MEAN else {task: reader for task, reader in readers.items() if task == by}
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
    held_out = HeldOut(smaller.predict(x[-1]), float(curves[:, -1].mean()), smaller.problem)
    return ArmErrors(arm, x, errors, law, held_out, law.problem)


def _gain(reference: ArmErrors, arm: ArmErrors) -> Gain:
    at = []
    for ours, theirs in zip(arm.errors, reference.errors, strict=True):
        found = estimate(paired(theirs, ours))
        if found is None:
            raise UserError(f"arms {reference.arm} and {arm.arm} have no common seed at a point of their ladder")
        at.append(found)
    seeds = _common([*reference.errors, *arm.errors])
    laws = None
    if len(seeds) >= MIN_SEEDS and not (reference.problem or arm.problem):
        first, second = (fit_power_law(np.array(one.x), _curves(one.errors, seeds)) for one in (reference, arm))
        laws = first, second
    return Gain(arm.arm, reference.x, at, laws)


def _common(errors: list[BySeed]) -> list[int]:
    return sorted(set.intersection(*(set(by_seed) for by_seed in errors)))


def _curves(errors: list[BySeed], seeds: list[int]) -> Array:
    return np.array([[by_seed[seed] for by_seed in errors] for seed in seeds])
