"""Ladders: the same methods at several points of samples, data, width or batch (`clipx reproduce scale=AXIS`).

A ladder is found among comparisons: their conditions are equal but for the settings of one axis, and they score on the
same data sets. Its gains are the differences of these comparisons, paired by seed, to one reference at every point.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from clipx.config.schema import AXES, MIN_POINTS
from clipx.data.sampler import num_train
from evaluation.compare.methods import Method, MethodComparison, SeedMean
from evaluation.runs.description import last, settings_of_method, training_flops
from evaluation.runs.groups import RunGroup, method_labels
from evaluation.runs.reader import Run

REFERENCE = "clip"  # the reference if none is chosen; without such a method, it is the first by name
# axis -> name of the quantity on the x axis of figures, and the function that reads it from a run; 0 if it is unknown
QUANTITIES: dict[str, tuple[str, Callable[[Run], float]]] = {
    "samples": ("samples seen", lambda run: float(last(run, "samples") or run.config.train.samples or 0)),
    "data": (
        "training pairs",
        lambda run: float(num_train(run.config.data.scenes.num_train, run.config.data.held_out)),
    ),
    "width": ("FLOPs of the towers", training_flops),
    "batch": ("batch size", lambda run: float(run.config.train.batch_size)),
}
Same = tuple[object, ...]  # what all comparisons of a ladder share


@dataclass(frozen=True)
class Ladder:
    """Gains of methods over a reference at MIN_POINTS or more points of one axis."""

    axis: str
    points: list[MethodComparison]  # ascending in x
    x: list[float]  # the quantity of the axis at each point, mean over the runs of the reference that did not diverge
    reference: str
    gains: dict[str, list[SeedMean | None]]  # method -> its score minus the reference's; None: no common seed

    @property
    def quantity(self) -> str:
        """The name of x."""
        return QUANTITIES[self.axis][0]


def find_ladders(comparisons: list[MethodComparison], reference: str = "") -> list[Ladder]:
    """Return the ladders with the reference and another method at MIN_POINTS or more points.

    `reference`: label of a method; see REFERENCE for "".
    """
    found: list[Ladder] = []
    for axis, keys in AXES.items():
        changing = {*keys, "training samples"} if axis == "data" else {*keys}
        alike: dict[Same, list[MethodComparison]] = {}
        for one in comparisons:
            conditions = tuple(item for item in one.conditions.items() if item[0] not in changing)
            if one.ranked:
                alike.setdefault((conditions, one.scored), []).append(one)
        enough = [members for members in alike.values() if len(members) >= MIN_POINTS]  # FLOPs take seconds to count
        found += filter(None, (_ladder(axis, members, reference or REFERENCE) for members in enough))
    return found


def _ladder(axis: str, comparisons: list[MethodComparison], reference: str) -> Ladder | None:
    """Return the ladder of these comparisons; None without a second method at MIN_POINTS points."""
    at = [(one, _by_settings(one)) for one in comparisons]
    counts = Counter(key for _, methods in at for key in methods)
    first = {key: method for _, methods in reversed(at) for key, method in methods.items()}  # at its first point
    by_label = sorted(first, key=lambda key: (first[key].label, -counts[key]))
    base = next((key for key in by_label if first[key].label == reference), by_label[0])
    quantity = QUANTITIES[axis][1]
    bases = [(RunGroup("", methods[base].runs).longest, one, methods) for one, methods in at if base in methods]
    points = [(fmean(map(quantity, runs)), one, methods) for runs, one, methods in bases]
    points.sort(key=lambda point: point[0])
    gains = {}
    for key in by_label:
        differences = [one.difference(of[key], of[base]) if key in of else None for _, one, of in points]
        if key != base and len(points) - differences.count(None) >= MIN_POINTS:
            gains[key] = differences
    if not gains:
        return None
    # the labels of one comparison tell its own methods apart, but not those that have no point in it
    groups = {key: RunGroup(first[key].name, first[key].runs) for key in (base, *gains)}
    labels = dict(zip(groups, method_labels([*groups.values()], {*AXES[axis], "optimizer.lr"}), strict=True))
    by_method = {labels[key]: of_method for key, of_method in gains.items()}
    return Ladder(axis, [one for _, one, _ in points], [x for x, _, _ in points], labels[base], by_method)


def _by_settings(comparison: MethodComparison) -> dict[Same, Method]:
    """Return settings -> method. Of methods that differ in the learning rate only, the one with the most seeds counts.

    So a rate may be chosen for each point. Among equals, the shortest name has the fewest changes to the recipe.
    """
    found: dict[Same, Method] = {}
    for method in sorted(comparison.ranked, key=lambda one: (len(one.values[comparison.by]), -len(one.runs[0].name))):
        run = method.runs[0]
        objective, settings = settings_of_method(run)
        others = tuple((key, value) for key, value in settings.items() if key != "optimizer.lr")
        found[run.config.recipe, run.config.arm, objective, others] = method
    return found
