"""Figures of the embedding geometry: density plot, scatter plot, histogram, column chart, PCA plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from clipx.utils.figures import COLOURS, MAX_TICKS, plain_ticks
from evaluation.report.blocks import Data, Figure
from evaluation.report.figures.svg import DASHED, FONT, INK, Drawing, drawing, short_all

MAX_POINT_LABELS = 30  # scatter plots with more points have no point labels
PLACES = [((dx, dy), "right" if dx < 0 else "left") for dx in (5, -5) for dy in (0, 7, -7)]  # offset in px, alignment

Point = tuple[float, float]
Scale = Literal["linear", "log", "logit"]


@dataclass(frozen=True)
class Density:
    """A histogram with equal bins and area 1."""

    start: float  # left edge of the first bin
    width: float  # of a bin
    values: list[float]


def density_plot(name: str, caption: str, densities: dict[str, Density]) -> Figure:
    """Draw one stepped curve per label, without empty bins at its ends, and a dashed line at 0."""
    rows: list[list[str | float]] = []
    with drawing(name, 340, 230, densities) as (plot, axes):
        for label, density in densities.items():
            filled = [at for at, value in enumerate(density.values) if value > 0] or [0]
            values = density.values[filled[0] : filled[-1] + 1]
            edges = [density.start + density.width * (filled[0] + at) for at in range(len(values) + 1)]
            axes.stairs(values, edges, color=plot.colours[label], linewidth=1.4, fill=True, alpha=0.18)
            axes.stairs(values, edges, color=plot.colours[label], linewidth=1.4)
            rows += [[label, *one] for one in zip(edges, edges[1:], values, strict=False)]
        axes.axvline(0, color=INK, linestyle=DASHED, linewidth=1)
        return plot.to_figure(caption, Data(["curve", "from", "to", "density"], rows), "margin", "density")


def scatter_plot(
    name: str,
    caption: str,
    points: dict[str, Point],
    x: str,
    y: str,
    scales: tuple[Scale, Scale] = ("linear", "linear"),
    grey: dict[str, Point] | None = None,
    dashed: Sequence[Point] = (),
) -> Figure:
    """Draw labelled points; `x` and `y` name the axes. `grey`: further points without labels; `dashed`: a line."""
    with drawing(name, 360, 260) as (plot, axes):
        axes.set_xscale(scales[0])
        axes.set_yscale(scales[1])
        if grey:
            axes.plot(*zip(*grey.values(), strict=True), "o", color=INK, markersize=3, alpha=0.3, markeredgewidth=0)
        if dashed:
            axes.plot(*zip(*dashed, strict=True), color=INK, linestyle=DASHED, linewidth=1)
        for label, point in points.items():
            axes.plot(*point, "o", color=COLOURS[0], markersize=5, alpha=0.8, gid=plot.curve_id(label))
        axes.margins(0.12)
        for axis, scale in zip((axes.xaxis, axes.yaxis), scales, strict=True):
            if scale == "linear":
                axis.get_major_locator().set_params(nbins=MAX_TICKS)
            else:
                plain_ticks(axis)
        axes.grid(alpha=0.15, color=INK)
        if len(points) <= MAX_POINT_LABELS:
            add_labels(plot, points)
        rows: list[list[str | float]] = [[label, *point] for label, point in {**(grey or {}), **points}.items()]
        return plot.to_figure(caption, Data(["point", x, y], rows), x, y)


def add_labels(plot: Drawing, points: dict[str, Point]) -> None:
    """Label each point where the label covers no other label and no point; leave it out if there is no such place."""
    plot.canvas.draw_without_rendering()  # computes the positions in pixels
    dots = plot.axes.transData.transform(list(points.values()))
    taken: list[Any] = []  # boxes of labels
    for label, point in zip(short_all(points), points.values(), strict=True):
        for offset, side in PLACES:
            text = plot.axes.annotate(
                label, point, offset, textcoords="offset points", ha=side, va="center", fontsize=FONT - 2
            )
            box = text.get_window_extent()
            if not box.count_overlaps(taken) and not box.count_contains(dots):
                taken.append(box)
                break
            text.remove()


def histogram(name: str, caption: str, values: list[float], x: str) -> Figure:
    """Draw the number of runs per bin, and a dashed line at 0."""
    with drawing(name, 340, 230) as (plot, axes):
        axes.hist(values, bins=20, color=COLOURS[0], alpha=0.75)
        axes.axvline(0, color=INK, linestyle=DASHED, linewidth=1)
        axes.yaxis.get_major_locator().set_params(integer=True)
        return plot.to_figure(caption, Data([x], [[value] for value in values]), x, "runs")


def column_chart(name: str, caption: str, values: list[float], x: str, y: str) -> Figure:
    """Draw one column per value, at x = 0, 1, 2, ..."""
    with drawing(name, 340, 230) as (plot, axes):
        axes.bar(range(len(values)), values, color=COLOURS[0], alpha=0.75)
        return plot.to_figure(caption, Data([x, y], [[at, value] for at, value in enumerate(values)]), x, y)


def pca_plot(name: str, caption: str, image: list[list[float]], text: list[list[float]]) -> Figure:
    """Draw the projections [n, 2] of images and texts, and a line from each image to its text."""
    with drawing(name, 340, 260, ["images", "texts"]) as (plot, axes):
        for (x, y), (u, v) in zip(image, text, strict=True):
            axes.plot([x, u], [y, v], color=INK, linewidth=0.5, alpha=0.25)
        for label, points in (("images", image), ("texts", text)):
            axes.plot(*zip(*points, strict=True), "o", color=plot.colours[label], markersize=3.5)
        rows: list[list[str | float]] = [[*a, *b] for a, b in zip(image, text, strict=True)]
        columns = [f"{order} component of the {side}" for side in ("image", "text") for order in ("first", "second")]
        return plot.to_figure(caption, Data(columns, rows), "first component", "second component")
