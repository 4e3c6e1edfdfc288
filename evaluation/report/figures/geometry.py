"""Figures of the shared space: densities, scatters, histograms, pairs in a plane."""

from dataclasses import dataclass

from evaluation.report.blocks import Figure
from evaluation.report.figures.svg import (
    COLOURS,
    FONT,
    INK,
    LABELS,
    canvas_of,
    colours_of,
    drawing,
    figure_of,
    legend,
    legend_height,
    short,
)

MOST_LABELS = 30  # points of a scatter that are named


@dataclass(frozen=True)
class Density:
    """A histogram of equal bins whose area is 1."""

    first: float  # where the first bin begins
    width: float
    value: list[float]


def densities(name: str, caption: str, lines: dict[str, Density]) -> Figure:
    """Stepped curves by label, cut to where they are above 0, a dashed line at 0."""
    with drawing(name):
        colours = colours_of(list(lines))
        canvas, axes = canvas_of(340, 230 + legend_height(colours))
        for label, density in lines.items():
            shown = [at for at, value in enumerate(density.value) if value > 0] or [0]
            values = density.value[shown[0] : shown[-1] + 1]
            edges = [density.first + density.width * (shown[0] + at) for at in range(len(values) + 1)]
            axes.stairs(values, edges, color=colours[label], linewidth=1.4, fill=True, alpha=0.18)
            axes.stairs(values, edges, color=colours[label], linewidth=1.4)
        axes.axvline(0, color=INK, linestyle=(0, (4, 3)), linewidth=1)
        axes.set_xlabel("margin")
        axes.set_ylabel("density")
        legend(canvas, colours)
        return figure_of(canvas, name, caption)


def scatter(name: str, caption: str, points: dict[str, tuple[float, float]], x: str, y: str) -> Figure:
    """Named points."""
    with drawing(name):
        canvas, axes = canvas_of(360, 260)
        axes.plot(*zip(*points.values(), strict=True), "o", color=COLOURS[0], markersize=5, alpha=0.8)
        for label, place in points.items() if len(points) <= MOST_LABELS else ():
            axes.annotate(short(label), place, xytext=(4, 3), textcoords="offset points", fontsize=FONT - 3)
        axes.margins(0.12)
        axes.locator_params(axis="x", nbins=LABELS)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.15, color=INK)
        return figure_of(canvas, name, caption)


def counts(name: str, caption: str, values: list[float], x: str, bins: int = 20) -> Figure:
    """Histogram with 0 in sight."""
    with drawing(name):
        canvas, axes = canvas_of(340, 230)
        axes.hist(values, bins=bins, color=COLOURS[0], alpha=0.75)
        axes.axvline(0, color=INK, linestyle=(0, (4, 3)), linewidth=1)
        axes.set_xlabel(x)
        axes.set_ylabel("runs")
        axes.yaxis.get_major_locator().set_params(integer=True)
        return figure_of(canvas, name, caption)


def columns(name: str, caption: str, values: list[float], x: str, y: str) -> Figure:
    """A column for each of 0, 1, 2, ..."""
    with drawing(name):
        canvas, axes = canvas_of(340, 230)
        axes.bar(range(len(values)), values, color=COLOURS[0], alpha=0.75)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        return figure_of(canvas, name, caption)


def pairs_in_plane(name: str, caption: str, image: list[list[float]], text: list[list[float]]) -> Figure:
    """Images and texts in two colours, each pair joined by a line."""
    with drawing(name):
        colours = colours_of(["images", "texts"])
        canvas, axes = canvas_of(340, 260 + legend_height(colours))
        for (x, y), (u, v) in zip(image, text, strict=True):
            axes.plot([x, u], [y, v], color=INK, linewidth=0.5, alpha=0.25)
        for label, places in (("images", image), ("texts", text)):
            axes.plot(*zip(*places, strict=True), "o", color=colours[label], markersize=3.5)
        axes.set_xlabel("first component")
        axes.set_ylabel("second component")
        legend(canvas, colours)
        return figure_of(canvas, name, caption)
