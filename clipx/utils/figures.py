"""The style of all figures: colours, thin axes, tick labels, reproducible files."""

from typing import Any

Figure = Any  # matplotlib.figure.Figure, which loads slowly

# Contrast of at least 3 on white and on the dark page of a report, and distinct for colour-blind readers:
# tests/evaluation/report/test_figures.py measures both.
COLOURS = ("#1e5aff", "#d27800", "#007878", "#d21e2d", "#b42db4", "#879669", "#0096f0", "#ff3ca5")
BLUE, ORANGE, GREEN, RED, *_ = COLOURS
GREY = "#6b6b6b"
MAX_TICKS = 6  # with more, labels such as -0.0425 would touch

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
    "axes.unicode_minus": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "clipx",  # makes element ids, and so the files, reproducible
    "pdf.fonttype": 42,  # TrueType: publishers refuse matplotlib's default, Type 3
    "ps.fonttype": 42,  # matplotlib 3.11 also reads this one for PDF: with 3, a τ or … would embed the font again
}


def panels(columns: int, rows: int = 1, width: float = 4.3, height: float = 3.3) -> tuple[Figure, Any]:
    """Return a figure and its axes, [columns] or [rows, columns]; width and height of a panel in inches."""
    from matplotlib.figure import Figure as Canvas  # not pyplot, which may open a window and keeps global state

    figure = Canvas(figsize=(columns * width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns)


def plain_ticks(axis: Any) -> None:
    """Label the ticks of a logarithmic axis with plain numbers: powers of ten, also 2 and 5 times these on short axes.

    If the largest value of the axis is less than five times the smallest, the ticks have equal steps.
    """
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < 5 * low:  # the logarithmic locator below could set one tick or none
        axis.set_major_locator(MaxNLocator(MAX_TICKS))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    large = EngFormatter(sep="")  # 150k, 2M
    axis.set_major_formatter(FuncFormatter(lambda value, _: large(value) if value >= 1e4 else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
