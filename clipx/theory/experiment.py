"""The protocol of a toy problem: settings -> `solve` -> result -> `claims` and `figure`.

Each file of a paper defines a dataclass of settings, a dataclass of results and these three functions.
`clipx.theory.THEORY` lists the problems. `figure` returns panels of curves, which `write_figure` draws as one SVG file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clipx.utils.figures import COLOURS, GREY, MAX_TICKS, STYLE, panels, plain_ticks
from clipx.verdict import CheckedClaim

Array = NDArray[np.float64]
COLUMNS = 3  # panels in a row of a figure


@dataclass(frozen=True)
class Curve:
    """A line or markers, in matplotlib's notation of styles: "-", "--", "o", "o-"."""

    name: str  # in the legend
    x: Array
    y: Array
    style: str = "-"
    colour: int | str | None = None  # index into COLOURS, or a colour; None: the place of the curve in its panel
    error: Array | None = None  # half-widths of confidence intervals of y


@dataclass(frozen=True)
class Panel:
    """Curves over the same axes."""

    x: str  # label of the axis
    y: str
    curves: list[Curve]
    title: str = ""
    log: str = ""  # logarithmic axes: "x", "y" or "xy"
    levels: Mapping[str, float] = field(default_factory=dict)  # label -> y of a dotted horizontal line


@dataclass(frozen=True)
class Experiment:
    """A toy problem. `solve` computes the result from the settings; the other functions only read the result."""

    settings: type
    solve: Callable[[Any], Any]
    claims: Callable[[Any], list[CheckedClaim]]
    figure: Callable[[Any], list[Panel]]


def write_figure(drawn: list[Panel], path: Path) -> None:
    """Write an SVG file with the panels, COLUMNS in each row."""
    from matplotlib import rc_context

    columns = min(COLUMNS, len(drawn))
    rows = -(-len(drawn) // columns)
    with rc_context(STYLE):
        figure, grid = panels(columns, rows, width=4.6, height=3.6)
        for axes, panel in zip(grid.flat, drawn, strict=False):
            _draw(axes, panel)
        for unused in grid.flat[len(drawn) :]:
            unused.remove()
        figure.savefig(path, metadata={"Date": None})  # without a date equal figures give equal files


def _draw(axes: Any, panel: Panel) -> None:
    for place, curve in enumerate(panel.curves):
        colour = place if curve.colour is None else curve.colour
        if isinstance(colour, int):
            colour = COLOURS[colour % len(COLOURS)]
        axes.errorbar(curve.x, curve.y, curve.error, fmt=curve.style, color=colour, label=curve.name, capsize=3)
    for name, y in panel.levels.items():
        axes.axhline(y, color=GREY, linewidth=1, linestyle=":", zorder=1)
        left: Any = {"xycoords": ("axes fraction", "data"), "xytext": (0, 2), "textcoords": "offset points"}
        axes.annotate(name, (0.01, y), color=GREY, fontsize=8.5, **left)
    axes.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        # a scale without a positive number cannot be logarithmic
        if name in panel.log and any((getattr(curve, name) > 0).any() for curve in panel.curves):
            axes.set(**{f"{name}scale": "log"})
            plain_ticks(axis)
        else:
            axes.locator_params(axis=name, nbins=MAX_TICKS)
    axes.legend()
