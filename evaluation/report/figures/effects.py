"""Figures of effects: forest plot, heat map of differences, paths of methods during training, plane of two effects."""

from dataclasses import dataclass
from typing import Any

from clipx.utils.figures import COLOURS
from evaluation.report.blocks import Data, Figure
from evaluation.report.figures.geometry import add_labels
from evaluation.report.figures.svg import DASHED, FONT, INK, drawing, short_all

LINEAR_TO = 0.1  # forest plots whose intervals reach further have a logarithmic axis outside of ±0.01
MARKS = {  # verdict -> colour, marker
    "holds": (COLOURS[2], "o"),
    "does not hold": (COLOURS[3], "X"),
    "equivalent": (COLOURS[1], "D"),
    "undecided": (INK, "o"),
}


@dataclass(frozen=True)
class Effect:
    """A line of a forest plot."""

    label: str
    verdict: str  # a key of MARKS
    value: float
    low: float
    high: float
    least: float | None  # smallest effect of interest
    look: str  # seeds and look, printed at the right: "5 seeds, look 2 of 5"


@dataclass(frozen=True)
class Shade:
    """A cell of a heat map: blue above 0, orange below, grey if undecided, no colour without a value."""

    text: str
    value: float | None = None
    decided: bool = False


@dataclass(frozen=True)
class PlanePoint:
    """A method in a plane of two effects."""

    label: str
    x: tuple[float, float, float]  # low, value, high
    y: tuple[float, float, float]
    path: list[tuple[float, float]]  # from (0, 0) to the point; [] for none


def forest_plot(name: str, caption: str, effects: list[Effect]) -> Figure:
    """Draw effects with their intervals, one per line, and a tick at the smallest effect of interest."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    verdicts = [verdict for verdict in MARKS if any(effect.verdict == verdict for effect in effects)]
    labels = short_all([effect.label for effect in effects], 60)
    with drawing(name, 640, 60 + 17 * len(effects), verdicts) as (plot, axes):
        plot.colours.update({verdict: MARKS[verdict][0] for verdict in verdicts})
        if max(abs(end) for e in effects for end in (e.low, e.high, e.least or 0.0)) > LINEAR_TO:
            axes.set_xscale("symlog", linthresh=0.01)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        for row, effect in enumerate(effects):
            colour, marker = MARKS[effect.verdict]
            style: Any = {"color": colour, "gid": plot.curve_id(effect.verdict)}
            axes.plot([effect.low, effect.high], [row, row], linewidth=1.6, **style)
            fill = "none" if effect.verdict == "undecided" else colour
            axes.plot(effect.value, row, marker, markersize=6, markerfacecolor=fill, **style)
            if effect.least is not None:
                axes.plot(effect.least, row, "|", color=INK, markersize=11, markeredgewidth=1.4)
            axes.text(
                1.01, row, effect.look, transform=axes.get_yaxis_transform(), fontsize=FONT - 1, va="center_baseline"
            )
        axes.axvline(0, color=INK, linestyle=DASHED, linewidth=0.8)
        axes.set_yticks(range(len(effects)), labels)
        axes.set_ylim(len(effects) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", alpha=0.15, color=INK)
        rows: list[list[str | float]] = [
            [e.label, e.verdict, e.value, e.low, e.high, "" if e.least is None else e.least, e.look] for e in effects
        ]
        columns = ["part", "verdict", "effect", "low", "high", "smallest effect of interest", "look"]
        return plot.to_figure(caption, Data(columns, rows), "effect")


def heat_map(
    name: str, caption: str, rows: list[str], columns: list[str], cells: list[list[Shade]], data: Data
) -> Figure:
    """Draw a table of shades. Opacity shows the size of a value, relative to the largest one in the map."""
    from matplotlib.patches import Rectangle

    largest = max((abs(cell.value) for line in cells for cell in line if cell.value is not None), default=0) or 1
    names, heads = short_all(rows), short_all(columns)
    widest = max(len(cell.text) for line in cells for cell in line)
    width = 40 + 6 * max(map(len, names)) + len(columns) * max(24, 6 * widest + 8)
    with drawing(name, max(width, 250), 40 + 5 * max(map(len, heads)) + 22 * len(rows)) as (plot, axes):
        for y, line in enumerate(cells):
            for x, cell in enumerate(line):
                if cell.value is not None:
                    decided = COLOURS[0 if cell.value > 0 else 1], 0.1 + 0.5 * abs(cell.value) / largest
                    colour, opacity = decided if cell.decided else (INK, 0.07)
                    corner = (x - 0.47, y - 0.46)
                    axes.add_patch(Rectangle(corner, 0.94, 0.92, facecolor=colour, alpha=opacity, edgecolor="none"))
                axes.text(x, y, cell.text, ha="center", va="center_baseline", fontsize=FONT - 1)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(columns)), heads, rotation=60, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(len(rows)), names)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        return plot.to_figure(caption, data)


def paths(name: str, caption: str, points: dict[str, list[tuple[float, float]]], x: str, y: str) -> Figure:
    """Draw one path per label: a dot at its beginning, an arrow at its end. A label without points keeps its colour."""
    with drawing(name, 340, 250, points) as (plot, axes):
        for label, path in points.items():
            if not path:
                continue
            style = plot.style(label)
            line: Any = {"color": style["color"], "linestyle": style["linestyle"], "gid": plot.curve_id(label)}
            axes.plot(*zip(*path, strict=True), linewidth=1.4, **line)
            axes.plot(*path[0], "o", color=style["color"], markersize=4, gid=plot.curve_id(label))
            head = {"arrowstyle": "-|>", "color": style["color"], "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
            arrow = axes.annotate("", path[-1], path[-2], arrowprops=head)
            arrow.arrow_patch.set_gid(plot.curve_id(label))
        axes.margins(0.08)
        axes.grid(alpha=0.15, color=INK)
        rows: list[list[str | float]] = [[label, *point] for label, path in points.items() for point in path]
        return plot.to_figure(caption, Data(["curve", x, y], rows), x, y)


def plane(name: str, caption: str, points: list[PlanePoint], x: str, y: str) -> Figure:
    """Draw one point with both intervals per label, and its path. Dashed: the axes and x = y."""
    rows: list[list[str | float]] = []
    with drawing(name, 560, 400, [point.label for point in points]) as (plot, axes):
        for point in points:
            style = plot.style(point.label)
            gid, (x_low, at_x, x_high), (y_low, at_y, y_high) = plot.curve_id(point.label), point.x, point.y
            thin: Any = {"color": style["color"], "linewidth": 1, "gid": gid}
            axes.plot([x_low, x_high], [at_y, at_y], **thin)
            axes.plot([at_x, at_x], [y_low, y_high], **thin)
            axes.plot(at_x, at_y, style["marker"], color=style["color"], markersize=6, gid=gid)
            if point.path:
                axes.plot(*zip(*point.path, strict=True), linestyle=style["linestyle"], marker=".", **thin)
            rows.append([point.label, at_x, x_low, x_high, at_y, y_low, y_high])
            rows += [[point.label, at[0], "", "", at[1], "", ""] for at in point.path[1:-1]]
        axes.plot(0, 0, "+", color=INK, markersize=9)
        dashed: Any = {"color": INK, "linestyle": DASHED, "linewidth": 0.8, "alpha": 0.6}
        axes.axvline(0, **dashed)
        axes.axhline(0, **dashed)
        axes.margins(0.08)
        limits = axes.get_xlim(), axes.get_ylim()
        axes.axline((0, 0), slope=1, **dashed)
        axes.set(xlim=limits[0], ylim=limits[1])
        axes.grid(alpha=0.15, color=INK)
        add_labels(plot, {point.label: (point.x[1], point.y[1]) for point in points})
        return plot.to_figure(caption, Data(["method", x, "low", "high", y, "low", "high"], rows), x, y)
