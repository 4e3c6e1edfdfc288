"""The common style of the theory figures: colour-blind safe colours (Okabe and Ito), thin axes, SVG."""

from typing import Any

Figure = Any  # matplotlib.figure.Figure, which loads slowly
Figures = dict[str, Figure]  # file name without suffix -> figure

BLUE, RED, GREEN, PINK, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
GREY = "#6b6b6b"
COLOURS = (BLUE, RED, GREEN, PINK, SKY, ORANGE, "#000000", GREY)

STYLE: dict[Any, Any] = {  # matplotlib's settings, while figures are drawn and saved
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "clipx",  # makes element ids, and so the files, reproducible
}


def panels(columns: int, rows: int = 1, width: float = 4.3, height: float = 3.3) -> tuple[Figure, Any]:
    """Return a figure and its axes, [columns] or [rows, columns]; width and height of a panel in inches."""
    from matplotlib.figure import Figure as Canvas  # not pyplot, which may open a window and keeps global state

    figure = Canvas(figsize=(columns * width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns)


def ordered_colours(count: int) -> list[Any]:
    """Return colours for the values of an ordered parameter, dark to light."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.85 * at / max(1, count - 1)) for at in range(count)]  # without the pale end


def reference_line(axes: Any, y: float, label: str) -> None:
    """Draw a dotted horizontal line with a label at its left end."""
    axes.axhline(y, color=GREY, linewidth=1, linestyle=":", zorder=1)
    annotate(axes, label, (0.01, y), ("axes fraction", "data"), (0, 2))


def annotate(
    axes: Any, text: str, at: tuple[float, float], coordinates: tuple[str, str], offset: tuple[int, int]
) -> None:
    """Write small grey text; `offset` in points."""
    place: Any = {"xycoords": coordinates, "xytext": offset, "textcoords": "offset points"}
    axes.annotate(text, at, color=GREY, fontsize=8.5, **place)


def plain_ticks(axis: Any, ticks: list[float]) -> None:
    """Label a logarithmic axis at these ticks only, with plain numbers."""
    from matplotlib.ticker import NullLocator

    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())
