"""The report's figures as SVG: lines and text in `currentColor`, series colours for white and black alike."""

from dataclasses import dataclass
from typing import Any

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

MAX_POINTS = 300  # a line; more are averaged
MAX_NAMED = 20  # classes of a confusion matrix that can be labelled


@dataclass(frozen=True)
class Line:
    """A curve; lines with the same label share a colour."""

    label: str
    x: list[float]
    y: list[float]
    mark: float | None = None  # the x of a point to circle


@dataclass(frozen=True)
class Bars:
    """One bar a category, each with its interval."""

    label: str
    value: list[float]
    low: list[float]
    high: list[float]


def curves(
    name: str, caption: str, lines: list[Line], x: str, y: str, log_x: bool = False, log_y: bool = True
) -> Figure:
    """Lines on common axes; y is logarithmic (if `log_y`) where positive values span more than a factor of five."""
    with drawing(name):
        colours = colours_of([line.label for line in lines])
        canvas, axes = canvas_of(340, 230 + legend_height(colours))
        for line in lines:
            xs, ys = _thin(line.x, line.y)
            style = ".-" if len(xs) <= 12 else "-"
            axes.plot(xs, ys, style, color=colours[line.label], linewidth=1.4, alpha=0.9)
            marked = [at for at, value in enumerate(line.x) if value == line.mark]
            for at in marked:
                ring = {"markerfacecolor": "none", "markeredgewidth": 1.6, "markersize": 10}
                axes.plot([line.x[at]], [line.y[at]], "o", color=colours[line.label], **ring)
        values = [value for line in lines for value in line.y]
        if log_y and values and min(values) > 0 and max(values) > 5 * min(values):
            axes.set_yscale("log")
            _plain_ticks(axes.yaxis)
        if log_x:
            axes.set_xscale("log")
            _plain_ticks(axes.xaxis)
        else:
            axes.locator_params(axis="x", nbins=LABELS)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.15, color=INK)
        legend(canvas, colours)
        return figure_of(canvas, name, caption)


def confusion(name: str, caption: str, classnames: list[str], matrix: list[list[int]]) -> Figure:
    """Heat map of shares of each row (the true class); labelled up to MAX_NAMED classes."""
    shares = [[count / max(1, sum(row)) for count in row] for row in matrix]
    size, named = len(classnames), len(classnames) <= MAX_NAMED
    with drawing(name):
        side = 110 + 26 * size if named else 340
        canvas, axes = canvas_of(max(side, 250), max(side - 20, 230))
        axes.imshow(_rgba(shares), interpolation="none", aspect="equal")
        if named:
            names = [short(classname) for classname in classnames]
            upright = max(map(len, names), default=0) * size <= 28  # else they would overlap
            axes.set_xticks(range(size), names, rotation=0 if upright else 90)
            axes.set_yticks(range(size), names)
            _percentages(axes, shares)
        axes.set_xlabel("predicted", labelpad=8)
        axes.set_ylabel("true")
        axes.tick_params(length=0)
        return figure_of(canvas, name, caption)


def bars(name: str, caption: str, categories: list[str], groups: list[Bars], chance: float | None) -> Figure:
    """Horizontal bars by category, a colour a group, whiskers for intervals, a dashed line for chance."""
    with drawing(name):
        colours = colours_of([group.label for group in groups])
        canvas, axes = canvas_of(340, 70 + len(categories) * (12 + 10 * len(groups)) + legend_height(colours))
        thick = 0.8 / len(groups)
        for index, group in enumerate(groups):
            at = [row - 0.4 + thick * (index + 0.5) for row in range(len(categories))]
            axes.barh(at, group.value, thick * 0.85, color=colours[group.label], alpha=0.75)
            axes.hlines(at, group.low, group.high, color=INK, linewidth=1.3)
        if chance is not None:
            axes.axvline(chance, color=INK, linestyle=(0, (4, 3)), linewidth=1)
            axes.text(chance, 1.01, "chance", transform=axes.get_xaxis_transform(), fontsize=FONT - 1, ha="center")
        axes.set_yticks(range(len(categories)), [short(category) for category in categories])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("accuracy")
        axes.grid(axis="x", alpha=0.15, color=INK)
        axes.tick_params(axis="y", length=0)
        legend(canvas, colours)
        return figure_of(canvas, name, caption)


def _thin(x: list[float], y: list[float]) -> tuple[list[float], list[float]]:
    """At most MAX_POINTS points: means of neighbours."""
    size = -(-len(x) // MAX_POINTS)
    if size <= 1:
        return x, y
    cuts = range(0, len(x), size)
    return [_mean(x[cut : cut + size]) for cut in cuts], [_mean(y[cut : cut + size]) for cut in cuts]


def _plain_ticks(axis: Any) -> None:
    """Logarithmic ticks as numbers (matplotlib writes formulas); 1-2-5 where there is room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _rgba(shares: list[list[float]]) -> Any:
    """The first series colour, the more opaque the larger the share: [classes, classes, 4] in 0..1."""
    import numpy as np
    from matplotlib.colors import to_rgb

    opacity = np.asarray(shares, dtype=float)
    picture = np.empty((*opacity.shape, 4))
    picture[..., :3] = to_rgb(COLOURS[0])
    picture[..., 3] = 0.04 + 0.96 * opacity
    return picture


def _percentages(axes: Any, shares: list[list[float]]) -> None:
    for row, of_row in enumerate(shares):
        for column, share in enumerate(of_row):
            if share >= 0.005:
                colour = "white" if share > 0.55 else INK
                axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", color=colour, fontsize=9)
