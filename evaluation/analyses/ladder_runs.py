"""Runs that form a ladder: the same arms at several points of one axis, found by the runs' settings."""

from dataclasses import dataclass

from clipx.config.schema import AXES, MIN_POINTS
from clipx.errors import UserError
from evaluation.analyses.comparison import LeftOut
from evaluation.runs.description import setting, settings_text
from evaluation.runs.reader import Run

NO_SETTING = "None"  # value of an axis that a run does not have, such as the size of real data
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
            shared = _shared(long)
            found = LadderRuns(recipe, along, dict(others), shared, [])
            found.left_out.extend(line for arm in long for line in chosen[arm][1])
            found.left_out.extend(_incomplete(found.name, {arm: points for arm, (points, _) in chosen.items()}, shared))
            ladders.append(found)
    return ladders


def refuse_short(runs: list[Run], axis: str = "") -> None:
    """Raise UserError; the message names the arm with the most points along `axis` ("": along any axis)."""
    found = _by_axis(runs, axis)
    counts = [(len(points), along, arm) for (_, along, _), arms in found.items() for arm, points in arms.items()]
    most, along, arm = max(counts, default=(0, axis or "samples", "an arm"))
    diverged = sum(run.diverged for run in runs)
    raise UserError(
        f"no ladder: {arm} has results at {most} of {MIN_POINTS} points of {along}; "
        f"clipx reproduce recipe=NAME scale={along} trains them, if the recipe lists points of {along} in `scale:`"
        + f"; {diverged} diverged runs do not count"
        * bool(diverged)
    )


def _by_axis(runs: list[Run], axis: str) -> Found:
    found: Found = {}
    for run in runs:
        if not run.config or not run.results or run.diverged:
            continue
        values = {name: str(setting(run, *keys[0].split("."))) for name, keys in AXES.items()}
        if setting(run, "data", "source") != "scenes":
            values["data"] = NO_SETTING
        recipe = str(setting(run, "recipe"))
        for along in [axis] if axis else AXES:
            others = tuple((name, value) for name, value in values.items() if name != along)
            arms = found.setdefault((recipe, along, others), {})
            arms.setdefault(str(setting(run, "arm") or recipe), {}).setdefault(values[along], []).append(run)
    return found


def _same_settings(points: Points, axis: str) -> tuple[Points, list[str]]:
    """Return the runs of one arm with the same settings at all points, one per seed, and lines about the others.

    Only the learning rate may differ between points. The settings with the most points are chosen, then the learning
    rate with the most runs at each point; among equals those with the shortest run name, which has the fewest changes
    to the recipe.
    """
    by_settings: dict[str, Points] = {}
    for point, runs in points.items():
        for run in runs:
            key = settings_text(run, without=(*AXES[axis], "optimizer.lr"))
            by_settings.setdefault(key, {}).setdefault(point, []).append(run)
    best = max(by_settings.values(), key=_preference)
    kept: Points = {}
    left_out: dict[str, list[str]] = {"other settings": [], "a second run of a seed": []}
    for point, runs in points.items():
        rates: dict[str, Points] = {}
        for run in best.get(point, []):
            rates.setdefault(str(setting(run, "optimizer", "lr")), {}).setdefault(point, []).append(run)
        chosen = max(rates.values(), key=_preference)[point] if rates else []
        for run in runs:
            if not any(run is one for one in chosen):
                left_out["other settings"].append(str(run.path))
            elif any(run.seed == other.seed for other in kept.get(point, [])):
                left_out["a second run of a seed"].append(str(run.path))
            else:
                kept.setdefault(point, []).append(run)
    return kept, [LeftOut(reason, paths).line() for reason, paths in left_out.items() if paths]


def _preference(points: Points) -> tuple[int, int, int]:
    runs = [run for of_point in points.values() for run in of_point]
    return (
        len(points),
        len({(run.seed, point) for point in points for run in points[point]}),
        -min(len(run.name) for run in runs),
    )


def _shared(arms: dict[str, Points]) -> dict[str, Points]:
    """Return the arms with their common points; an arm with which fewer than MIN_POINTS are common is left out."""
    shared: set[str] = set()
    together: dict[str, Points] = {}
    for arm, points in sorted(arms.items(), key=lambda item: -len(item[1])):
        common = shared & set(points) if together else set(points)
        if len(common) >= MIN_POINTS:
            shared, together = common, together | {arm: points}
    return {
        arm: {point: runs for point, runs in points.items() if point in shared}
        for arm, points in arms.items()
        if arm in together
    }


def _incomplete(ladder: str, arms: dict[str, Points], shared: dict[str, Points]) -> list[str]:
    """Return lines about arms with too few points, and about points that an arm of the ladder does not have."""
    lines = []
    for arm, points in arms.items():
        if len(points) < MIN_POINTS:
            lines.append(f"left out, {ladder}: {arm} has {len(points)} of at least {MIN_POINTS} points")
        elif arm not in shared:
            lines.append(f"left out, {ladder}: {arm} has fewer than {MIN_POINTS} points in common with the other arms")
    for point in dict.fromkeys(point for arm in shared for point in arms[arm]):
        missing = [arm for arm in shared if point not in arms[arm]]
        if missing:
            lines.append(f"left out, {ladder}: point {point}, without results of {', '.join(missing)}")
    return lines
