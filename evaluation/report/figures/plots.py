"""Figures of tasks and training: line plot, confusion matrix, bar chart."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from clipx.utils.figures import COLOURS, MAX_TICKS, plain_ticks
from evaluation.report.blocks import Data, Figure
from evaluation.report.figures.svg import DASHED, FONT, INK, drawing, short_all

MAX_POINTS = 300  # per line; in longer lines, neighbours are averaged
MAX_POINTS_OF_ALL = 12_000  # per figure: with many lines, each has fewer points, so that the page stays small
MAX_CLASS_LABELS = 20  # larger confusion matrices have no class labels


@dataclass(frozen=True)
class Line:
    """A curve; lines with the same label share a colour."""

    label: str
    x: list[float]
    y: list[float]
    mark: float | None = None  # x of a point to circle
    seed: int | None = None
    spread: list[tuple[float, float]] = field(default_factory=list)  # interval of each y; [] if there are none

    @classmethod
    def of_finite(
        cls, label: str, points: Iterable[tuple[float | None, float | None]], seed: int | None = None
    ) -> "Line":
        """Return the line through the points with a known x and a finite y."""
        known = [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]
        return cls(label, [x for x, _ in known], [y for _, y in known], seed=seed)


@dataclass(frozen=True)
class Bars:
    """One bar per category with its 95% interval."""

    label: str
    value: list[float]
    low: list[float]
    high: list[float]


def line_plot(
    name: str,
    caption: str,
    lines: list[Line],
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = True,
    whole_x: bool = False,
) -> Figure:
    """Draw lines. With `whole_x`, the ticks of the x axis are whole numbers.

    With `log_y`, the y axis is logarithmic if all values are positive and span more than a factor of five.
    """
    most = min(MAX_POINTS, max(20, MAX_POINTS_OF_ALL // max(1, len(lines))))
    rows: list[list[str | float]] = []
    with drawing(name, 340, 230, [line.label for line in lines]) as (plot, axes):
        for line in lines:
            xs, ys = _downsample(line.x, most), _downsample(line.y, most)
            gid = plot.curve_id(line.label, line.seed)
            few = {"markersize": 4 if len(xs) <= 12 else 0}
            axes.plot(xs, ys, linewidth=1.4, alpha=0.9, gid=gid, **plot.style(line.label), **few)
            seed = "" if line.seed is None else line.seed
            spread: Sequence[tuple[float, ...]] = line.spread or [()] * len(xs)
            rows += [[line.label, seed, *point, *ends] for *point, ends in zip(xs, ys, spread, strict=True)]
            for at, interval in zip(line.x, line.spread, strict=False):
                axes.plot([at, at], interval, linewidth=1, color=plot.colours[line.label], gid=gid)
            if line.mark is not None and line.mark in line.x:
                at = line.x.index(line.mark)
                ring = {"markerfacecolor": "none", "markeredgewidth": 1.6, "markersize": 10}
                axes.plot(line.x[at], line.y[at], "o", color=plot.colours[line.label], gid=gid, **ring)
        values = [value for line in lines for value in line.y]
        if log_y and values and min(values) > 0 and max(values) > 5 * min(values):
            axes.set_yscale("log")
            plain_ticks(axes.yaxis)
        if log_x:
            axes.set_xscale("log")
            plain_ticks(axes.xaxis)
        else:
            axes.locator_params(axis="x", nbins=MAX_TICKS, integer=whole_x)
        axes.grid(alpha=0.15, color=INK)
        intervals = ["low", "high"] if any(line.spread for line in lines) else []
        return plot.to_figure(caption, Data(["curve", "seed", x, y, *intervals], rows), x, y)


def confusion_matrix(name: str, caption: str, classnames: list[str], matrix: list[list[int]]) -> Figure:
    """Draw each row (true class) as shares; with more than MAX_CLASS_LABELS classes, no class is labelled."""
    from matplotlib.colors import to_rgb

    shares = [[count / max(1, sum(row)) for count in row] for row in matrix]
    size, labelled = len(classnames), len(classnames) <= MAX_CLASS_LABELS
    side = 110 + 26 * size if labelled else 340
    with drawing(name, max(side, 250), max(side - 20, 230)) as (plot, axes):
        colour = to_rgb(COLOURS[0])
        # the opacity shows the share; it is at most 0.6, so that the text on it has a contrast of 4.5
        pixels = [[(*colour, 0.04 + 0.56 * share) for share in row] for row in shares]
        axes.imshow(pixels, interpolation="none", aspect="equal")
        if labelled:
            names = short_all(classnames)
            fits = max(map(len, names), default=0) * size <= 28  # longer names would overlap, so they are rotated
            axes.set_xticks(range(size), names, rotation=0 if fits else 90)
            axes.set_yticks(range(size), names)
            for row, shares_of_row in enumerate(shares):
                for column, share in enumerate(shares_of_row):
                    if share >= 0.005:
                        axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=9)
        axes.xaxis.labelpad = 8
        axes.tick_params(length=0)
        counts: list[list[str | float]] = [[true, *row] for true, row in zip(classnames, matrix, strict=True)]
        return plot.to_figure(caption, Data(["true", *classnames], counts), "predicted", "true")


def bar_chart(name: str, caption: str, categories: list[str], groups: list[Bars], chance: float | None) -> Figure:
    """Draw horizontal bars by category, one colour per group, with intervals and a dashed line at chance."""
    height = 70 + len(categories) * (12 + 10 * len(groups))
    with drawing(name, 340, height, [group.label for group in groups]) as (plot, axes):
        thickness = 0.8 / len(groups)
        for index, group in enumerate(groups):
            y = [row - 0.4 + thickness * (index + 0.5) for row in range(len(categories))]
            axes.barh(y, group.value, thickness * 0.85, color=plot.colours[group.label], alpha=0.75)
            axes.hlines(y, group.low, group.high, color=INK, linewidth=1.3)
        if chance is not None:
            axes.axvline(chance, color=INK, linestyle=DASHED, linewidth=1)
            axes.text(chance, 1.01, "chance", transform=axes.get_xaxis_transform(), fontsize=FONT - 1, ha="center")
        axes.set_yticks(range(len(categories)), short_all(categories))
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.grid(axis="x", alpha=0.15, color=INK)
        axes.tick_params(axis="y", length=0)
        rows: list[list[str | float]] = [
            [group.label, *one]
            for group in groups
            for one in zip(categories, group.value, group.low, group.high, strict=True)
        ]
        columns = ["method", "category", "accuracy", "low", "high"]
        return plot.to_figure(caption, Data(columns, rows), "accuracy")


def _downsample(values: list[float], most: int) -> list[float]:
    size = -(-len(values) // most)
    return values if size <= 1 else [fmean(values[at : at + size]) for at in range(0, len(values), size)]
