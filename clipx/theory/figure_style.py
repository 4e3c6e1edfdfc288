"""One look for all drawings: colours that the colour-blind tell apart (Okabe and Ito), thin axes, SVG."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, RED, GREEN, PINK, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
GREY = "#6b6b6b"
COLOURS = (BLUE, RED, GREEN, PINK, SKY, ORANGE, "#000000", GREY)
SERIES = "viridis"  # for an ordered parameter; `ordered` leaves out its palest end
WIDTH, HEIGHT = 4.3, 3.3  # inches, of one panel


@contextmanager
def styled() -> Iterator[None]:
    """Holds while a figure is made and while it is written; nothing outside is changed."""
    from matplotlib import rc_context

    settings: Any = {
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
        "svg.hashsalt": "clipx",  # the same drawing gives the same file
    }
    with rc_context(settings):
        yield


def panels(columns: int, rows: int = 1, width: float = WIDTH, height: float = HEIGHT) -> tuple["Figure", Any]:
    """A figure and its axes, [columns] or [rows, columns]; not pyplot's: no window system, no global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns)


def ordered(count: int) -> list[Any]:
    """Colours for the values of an ordered parameter, dark to light."""
    from matplotlib import colormaps

    return [colormaps[SERIES](0.85 * at / max(1, count - 1)) for at in range(count)]


def reference(axes: Any, y: float, label: str, style: str = ":") -> None:
    """A horizontal reference line, named at its left end."""
    axes.axhline(y, color=GREY, linewidth=1, linestyle=style, zorder=1)
    note(axes, label, (0.01, y), ("axes fraction", "data"), (0, 2))


def note(axes: Any, text: str, at: tuple[float, float], coordinates: tuple[str, str], offset: tuple[int, int]) -> None:
    """Small grey words; `offset` in points."""
    place: Any = {"xycoords": coordinates, "xytext": offset, "textcoords": "offset points"}
    axes.annotate(text, at, color=GREY, fontsize=8.5, **place)


def plain_ticks(axis: Any, ticks: list[float]) -> None:
    """These ticks, as plain numbers, on a logarithmic axis."""
    from matplotlib.ticker import NullLocator

    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())


def write(figure: "Figure", path: Path) -> None:
    """As SVG without a date."""
    with styled():
        figure.savefig(path, metadata={"Date": None})
