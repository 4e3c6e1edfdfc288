"""Runs that form a ladder: the same arms at several points of one axis, found by the runs' settings."""

from dataclasses import dataclass

from clipx.config.ladder import AXES, MIN_POINTS
from clipx.errors import UserError
from evaluation.analyses.comparison import LeftOut
from evaluation.runs.description import setting, settings_text
from evaluation.runs.reader import Run

Points = dict[str, list[Run]]  # value of the axis -> runs
# (recipe, axis, values of the other axes) -> arm -> points
Found = dict[tuple[str, str, tuple[tuple[str, str], ...]], dict[str, Points]]


@dataclass(frozen=True)
class LadderRuns:
    """Runs of one recipe that differ in arm, seed and the value of one axis."""

    recipe: str
    axis: str
    others: dict[str, str]  # the other axes and their values
    arms: dict[str, Points]  # arm -> the points that all arms have, with one run per seed
    left_out: list[str]  # lines about runs, points and arms

    @property
    def name(self) -> str:
        """Recipe and axis."""
        return f"{self.recipe} along {self.axis}"


def find_ladder_runs(runs: list[Run], axis: str = "") -> list[LadderRuns]:
    """Return the ladders along `axis` ("": any) with an arm of MIN_POINTS points or more.

    Runs without results do not count.
    """
    ladders = []
    for (recipe, along, others), arms in _by_axis(runs, axis).items():
        chosen = {arm: _same_settings(points, along) for arm, points in arms.items()}
        long = {arm: points for arm, (points, _) in chosen.items() if len(points) >= MIN_POINTS}
        if long:
            found = LadderRuns(recipe, along, dict(others), _shared(long), [])
            found.left_out.extend(line for arm in long for line in chosen[arm][1])
            found.left_out.extend(_incomplete(found.name, {arm: points for arm, (points, _) in chosen.items()}))
            ladders.append(found)
    return ladders


def refuse_short(runs: list[Run], axis: str = "") -> None:
    """Raise UserError; the message names the arm with the most points along `axis` ("": along any axis)."""
    found = _by_axis(runs, axis)
    counts = [(len(points), along, arm) for (_, along, _), arms in found.items() for arm, points in arms.items()]
    most, along, arm = max(counts, default=(0, axis or "samples", "an arm"))
    raise UserError(
        f"no ladder: {arm} has results at {most} points of {along}, a ladder needs {MIN_POINTS}; "
        f"clipx reproduce recipe=R scale={along} trains them"
    )


def _by_axis(runs: list[Run], axis: str) -> Found:
    found: Found = {}
    for run in runs:
        if not run.config or not run.results or run.diverged:
            continue
        values = {name: str(setting(run, *keys[0].split("."))) for name, keys in AXES.items()}
        recipe = str(setting(run, "recipe"))
        for along in [axis] if axis else AXES:
            others = tuple((name, value) for name, value in values.items() if name != along)
            arms = found.setdefault((recipe, along, others), {})
            arms.setdefault(str(setting(run, "arm") or recipe), {}).setdefault(values[along], []).append(run)
    return found


def _same_settings(points: Points, axis: str) -> tuple[Points, list[str]]:
    """Return the runs of one arm with the same settings at all points, one per seed, and lines about the others.

    The settings that cover the most points are chosen; among equals those with the shortest run name, which has the
    fewest changes to the recipe. If no settings cover MIN_POINTS points, as with a learning rate for each point, they
    are chosen at each point.
    """
    by_settings: dict[str, Points] = {}
    for point, runs in points.items():
        for run in runs:
            by_settings.setdefault(settings_text(run, without=AXES[axis]), {}).setdefault(point, []).append(run)
    candidates = [*by_settings.values()]
    best = max(candidates, key=_preference)
    if len(best) < MIN_POINTS:
        at = {point: [{point: of[point]} for of in candidates if point in of] for point in points}
        best = {point: max(of_point, key=_preference)[point] for point, of_point in at.items()}
    kept: Points = {}
    left_out: dict[str, list[str]] = {"other settings": [], "a second run of a seed": []}
    for point, runs in points.items():
        for run in runs:
            if not any(run is one for one in best.get(point, [])):
                left_out["other settings"].append(str(run.path))
            elif any(run.seed == other.seed for other in kept.get(point, [])):
                left_out["a second run of a seed"].append(str(run.path))
            else:
                kept.setdefault(point, []).append(run)
    return kept, [LeftOut(reason, paths).line() for reason, paths in left_out.items() if paths]


def _preference(points: Points) -> tuple[int, int, int]:
    runs = [run for of_point in points.values() for run in of_point]
    return len(points), -min(len(run.name) for run in runs), len(runs)


def _shared(arms: dict[str, Points]) -> dict[str, Points]:
    shared = set.intersection(*map(set, arms.values()))
    return {arm: {point: runs for point, runs in points.items() if point in shared} for arm, points in arms.items()}


def _incomplete(ladder: str, arms: dict[str, Points]) -> list[str]:
    """Return lines about arms with too few points, and about points that an arm of the ladder does not have."""
    short = {arm: len(points) for arm, points in arms.items() if len(points) < MIN_POINTS}
    lines = [f"left out, {ladder}: {arm} has {n} points, a ladder needs {MIN_POINTS}" for arm, n in short.items()]
    long = {arm: points for arm, points in arms.items() if arm not in short}
    for point in dict.fromkeys(point for points in long.values() for point in points):
        missing = [arm for arm, points in long.items() if point not in points]
        if missing:
            lines.append(f"left out, {ladder}: point {point}, without results of {', '.join(missing)}")
    return lines
