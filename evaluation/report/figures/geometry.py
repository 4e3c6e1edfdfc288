"""Figures of the embedding geometry: density plot, scatter plot, histogram, column chart, PCA plot."""

from dataclasses import dataclass

from evaluation.report.blocks import Figure
from evaluation.report.figures.svg import COLOURS, DASHED, FONT, INK, MAX_X_TICKS, drawing, short_all

MAX_POINT_LABELS = 30  # scatter plots with more points have no point labels


@dataclass(frozen=True)
class Density:
    """A histogram with equal bins and area 1."""

    start: float  # left edge of the first bin
    width: float  # of a bin
    values: list[float]


def density_plot(name: str, caption: str, densities: dict[str, Density]) -> Figure:
    """Draw one stepped curve per label, without empty bins at its ends, and a dashed line at 0."""
    with drawing(name, 340, 230, densities) as (plot, axes):
        for label, density in densities.items():
            filled = [at for at, value in enumerate(density.values) if value > 0] or [0]
            values = density.values[filled[0] : filled[-1] + 1]
            edges = [density.start + density.width * (filled[0] + at) for at in range(len(values) + 1)]
            axes.stairs(values, edges, color=plot.colours[label], linewidth=1.4, fill=True, alpha=0.18)
            axes.stairs(values, edges, color=plot.colours[label], linewidth=1.4)
        axes.axvline(0, color=INK, linestyle=DASHED, linewidth=1)
        return plot.to_figure(caption, "margin", "density")


def scatter_plot(name: str, caption: str, points: dict[str, tuple[float, float]], x: str, y: str) -> Figure:
    """Draw labelled points; `x` and `y` name the axes."""
    with drawing(name, 360, 260) as (plot, axes):
        axes.plot(*zip(*points.values(), strict=True), "o", color=COLOURS[0], markersize=5, alpha=0.8)
        names = short_all(points) if len(points) <= MAX_POINT_LABELS else []
        for name, point in zip(names, points.values(), strict=False):
            axes.annotate(name, point, xytext=(4, 3), textcoords="offset points", fontsize=FONT - 3)
        axes.margins(0.12)
        axes.locator_params(axis="x", nbins=MAX_X_TICKS)
        axes.grid(alpha=0.15, color=INK)
        return plot.to_figure(caption, x, y)


def histogram(name: str, caption: str, values: list[float], x: str) -> Figure:
    """Draw the number of runs per bin, and a dashed line at 0."""
    with drawing(name, 340, 230) as (plot, axes):
        axes.hist(values, bins=20, color=COLOURS[0], alpha=0.75)
        axes.axvline(0, color=INK, linestyle=DASHED, linewidth=1)
        axes.yaxis.get_major_locator().set_params(integer=True)
        return plot.to_figure(caption, x, "runs")


def column_chart(name: str, caption: str, values: list[float], x: str, y: str) -> Figure:
    """Draw one column per value, at x = 0, 1, 2, ..."""
    with drawing(name, 340, 230) as (plot, axes):
        axes.bar(range(len(values)), values, color=COLOURS[0], alpha=0.75)
        return plot.to_figure(caption, x, y)


def pca_plot(name: str, caption: str, image: list[list[float]], text: list[list[float]]) -> Figure:
    """Draw the projections [n, 2] of images and texts, and a line from each image to its text."""
    with drawing(name, 340, 260, ["images", "texts"]) as (plot, axes):
        for (x, y), (u, v) in zip(image, text, strict=True):
            axes.plot([x, u], [y, v], color=INK, linewidth=0.5, alpha=0.25)
        for label, points in (("images", image), ("texts", text)):
            axes.plot(*zip(*points, strict=True), "o", color=plot.colours[label], markersize=3.5)
        return plot.to_figure(caption, "first component", "second component")
