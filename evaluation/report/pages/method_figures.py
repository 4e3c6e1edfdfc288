"""Figures of a comparison: differences of all pairs, scores by data set, interval by seeds, learning rates."""

import re

from evaluation.compare.methods import MIN_SEEDS, Method, MethodComparison, paired, seed_mean
from evaluation.report.blocks import Data, Figure
from evaluation.report.figures.effects import Shade, heat_map
from evaluation.report.figures.plots import Line, line_plot
from evaluation.runs.description import digits, settings_of_method

MAX_WITH_TEXT = 16  # with more methods, the matrix shows differences by colour only
COUNTS = ("wins", "ties", "losses")


def method_figures(comparison: MethodComparison, score: str, prefix: str) -> list[Figure]:
    """Return the figures that the comparison has data for; `score`: name of the ranking score."""
    several = len(comparison.ranked) > 1
    figures = [*_matrix(comparison, score, prefix), *_sets(comparison, prefix)] if several else []
    return [*figures, *_interval_by_seeds(comparison, prefix), *_learning_rates(comparison, score, prefix)]


def _matrix(comparison: MethodComparison, score: str, prefix: str) -> list[Figure]:
    methods = comparison.ranked
    cells: list[list[Shade]] = []
    rows: list[list[str | float]] = []
    for a in methods:
        found = [None if a is b else comparison.difference(a, b) for b in methods]
        signs = [one.sign for one in found if one]
        counts = [signs.count(1), signs.count(0), signs.count(-1)]
        shades = [Shade(digits(one.value, "+"), one.value, one.sign != 0) if one else Shade("") for one in found]
        if len(methods) > MAX_WITH_TEXT:
            shades = [Shade("", shade.value, shade.decided) for shade in shades]
        cells.append([*shades, *(Shade(str(count)) for count in counts)])
        rows.append([a.label, *("" if one is None else one.value for one in found), *counts])
    labels = [method.label for method in methods]
    caption = (
        f"{score}: row minus column, paired by seed. Grey: the 95% interval contains 0, or there are fewer than "
        f"{MIN_SEEDS} common seeds. Last columns: wins, ties and losses of the row"
    )
    data = Data(["row minus column", *labels, *COUNTS], rows)
    return [heat_map(f"{prefix}matrix", caption, labels, [*labels, *COUNTS], cells, data)]


def _sets(comparison: MethodComparison, prefix: str) -> list[Figure]:
    methods, reference = comparison.ranked, comparison.reference
    names = list(dict.fromkeys(name for method in methods for name in method.sets))
    cells, rows = [], []
    for name in names:
        cells.append([_against(method, reference, name) for method in methods])
        means = [seed_mean(method.sets.get(name, {})) for method in methods]
        rows.append([name, *("" if mean is None else mean.value for mean in means)])
    caption = (
        f"Score by data set. Blue: better than {reference.label}, orange: worse, grey: the 95% interval of the paired "
        f"difference contains 0, or there are fewer than {MIN_SEEDS} common seeds"
    )
    labels = [method.label for method in methods]
    return [heat_map(f"{prefix}sets", caption, names, labels, cells, Data(["set", *labels], rows))] if names else []


def _against(method: Method, reference: Method, name: str) -> Shade:
    """Return the method's mean on a set, shaded by the paired difference to the reference."""
    ours, theirs = method.sets.get(name, {}), reference.sets.get(name, {})
    mean, difference = seed_mean(ours), seed_mean(paired(ours, theirs))
    if mean is None:
        return Shade("")
    if method is reference or difference is None:
        return Shade(digits(mean.value))
    return Shade(digits(mean.value), difference.value, difference.sign != 0)


def _interval_by_seeds(comparison: MethodComparison, prefix: str) -> list[Figure]:
    """Draw half the width of the interval of each method's difference to the reference, for 3, 4, ... seeds."""
    if not comparison.ranked:
        return []
    reference, lines = comparison.reference, list[Line]()
    for method in comparison.ranked:
        points: list[tuple[float | None, float | None]] = []
        if method is reference:
            lines.append(Line(method.label, [], []))  # so that all figures give a method the same colour
            continue
        differences = sorted(paired(method.values[comparison.by], reference.values[comparison.by]).items())
        for count in range(MIN_SEEDS, len(differences) + 1):
            found = seed_mean(dict(differences[:count]))
            if found and found.low is not None and found.high is not None:
                points.append((count, (found.high - found.low) / 2))
        lines.append(Line.of_finite(method.label, points))
    if all(len(line.x) < 2 for line in lines):
        return []
    caption = (
        f"Precision: half the width of the 95% interval of the difference to {reference.label}, by number of seeds"
    )
    return [line_plot(f"{prefix}seeds", caption, lines, "seeds", "half-width", whole_x=True)]


def _learning_rates(comparison: MethodComparison, score: str, prefix: str) -> list[Figure]:
    families: dict[str, list[tuple[float, Method]]] = {}  # settings other than the learning rate -> (rate, method)
    for method in comparison.ranked:
        objective, others = settings_of_method(method.runs[0])
        rate = method.runs[0].config.optimizer.lr
        key = repr((objective, {name: value for name, value in others.items() if name != "optimizer.lr"}))
        if rate:
            families.setdefault(key, []).append((float(rate), method))
    lines = [_sensitivity(members, comparison.by) for members in families.values() if len(members) > 1]
    caption = f"{score} by learning rate: mean of the seeds, with a 95% interval for {MIN_SEEDS} seeds or more"
    return [line_plot(f"{prefix}lr", caption, lines, "learning rate", score, log_x=True, log_y=False)] if lines else []


def _sensitivity(members: list[tuple[float, Method]], by: str) -> Line:
    ordered = sorted(members, key=lambda member: member[0])
    found = [(rate, one) for rate, method in ordered if (one := seed_mean(method.values[by]))]
    label = re.sub(r"[-_]?optimizer\.lr_[^-]*", "", ordered[0][1].label)
    spread = [
        (one.value, one.value) if one.low is None or one.high is None else (one.low, one.high) for _, one in found
    ]
    return Line(label, [rate for rate, _ in found], [one.value for _, one in found], spread=spread)
