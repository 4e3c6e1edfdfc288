"""The report's figures as SVG: lines and text in `currentColor`, series colours for white and black alike."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaluation.document import Figure, one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

INK = "#010203"  # stands for currentColor until the drawing is written
COLOURS = ("#3d85c8", "#dd7a28", "#2a9d72", "#c2589a", "#8b72d6", "#a88a1c", "#3fa0b0", "#d3505f")
FONT = 10.0  # px
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


def curves(name: str, caption: str, lines: list[Line], x: str, y: str, log_x: bool = False) -> Figure:
    """Lines on common axes; y is logarithmic where positive values span more than a factor of five."""
    with _style(name):
        colours = _colours([line.label for line in lines])
        canvas, axes = _canvas(340, 230 + _legend_height(colours))
        for line in lines:
            xs, ys = _thin(line.x, line.y)
            style = ".-" if len(xs) <= 12 else "-"
            axes.plot(xs, ys, style, color=colours[line.label], linewidth=1.4, alpha=0.9)
            marked = [at for at, value in enumerate(line.x) if value == line.mark]
            for at in marked:
                ring = {"markerfacecolor": "none", "markeredgewidth": 1.6, "markersize": 10}
                axes.plot([line.x[at]], [line.y[at]], "o", color=colours[line.label], **ring)
        values = [value for line in lines for value in line.y]
        if values and min(values) > 0 and max(values) > 5 * min(values):
            axes.set_yscale("log")
            _plain_ticks(axes.yaxis)
        if log_x:
            axes.set_xscale("log")
            _plain_ticks(axes.xaxis)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.15, color=INK)
        _legend(canvas, colours)
        return _figure(canvas, name, caption)


def confusion(name: str, caption: str, classnames: list[str], matrix: list[list[int]]) -> Figure:
    """Heat map of shares of each row (the true class); labelled up to MAX_NAMED classes."""
    shares = [[count / max(1, sum(row)) for count in row] for row in matrix]
    size, named = len(classnames), len(classnames) <= MAX_NAMED
    with _style(name):
        side = 110 + 26 * size if named else 340
        canvas, axes = _canvas(max(side, 250), max(side - 20, 230))
        axes.imshow(_rgba(shares), interpolation="none", aspect="equal")
        if named:
            names = [_short(classname) for classname in classnames]
            upright = max(map(len, names), default=0) * size <= 28  # else they would overlap
            axes.set_xticks(range(size), names, rotation=0 if upright else 90)
            axes.set_yticks(range(size), names)
            _percentages(axes, shares)
        axes.set_xlabel("predicted", labelpad=8)
        axes.set_ylabel("true")
        axes.tick_params(length=0)
        return _figure(canvas, name, caption)


def bars(name: str, caption: str, categories: list[str], groups: list[Bars], chance: float | None) -> Figure:
    """Horizontal bars by category, a colour a group, whiskers for intervals, a dashed line for chance."""
    with _style(name):
        colours = _colours([group.label for group in groups])
        canvas, axes = _canvas(340, 70 + len(categories) * (12 + 10 * len(groups)) + _legend_height(colours))
        thick = 0.8 / len(groups)
        for index, group in enumerate(groups):
            at = [row - 0.4 + thick * (index + 0.5) for row in range(len(categories))]
            axes.barh(at, group.value, thick * 0.85, color=colours[group.label], alpha=0.75)
            axes.hlines(at, group.low, group.high, color=INK, linewidth=1.3)
        if chance is not None:
            axes.axvline(chance, color=INK, linestyle=(0, (4, 3)), linewidth=1)
            axes.text(chance, 1.01, "chance", transform=axes.get_xaxis_transform(), fontsize=FONT - 1, ha="center")
        axes.set_yticks(range(len(categories)), [_short(category) for category in categories])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("accuracy")
        axes.grid(axis="x", alpha=0.15, color=INK)
        axes.tick_params(axis="y", length=0)
        _legend(canvas, colours)
        return _figure(canvas, name, caption)


@contextmanager
def _style(name: str) -> Iterator[None]:
    """Settings that hold while drawing; nothing outside is changed."""
    from matplotlib import rc_context

    ink = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), INK)
    settings: Any = {
        **ink,
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # ids are the same in every run, and differ between drawings of a page
        "text.parse_math": False,  # captions and names may hold a $
        "axes.unicode_minus": False,
        "font.size": FONT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.7,
    }
    with rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser has the glyph
        yield


def _canvas(width: float, height: float) -> tuple["Canvas", Any]:
    """A drawing of that many px; not pyplot's, so that no window system or global state is involved."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width / 72, height / 72), layout="constrained")
    return canvas, canvas.add_subplot()


def _colours(labels: list[str]) -> dict[str, str]:
    return {label: COLOURS[at % len(COLOURS)] for at, label in enumerate(dict.fromkeys(labels))}


def _legend(canvas: "Canvas", colours: dict[str, str]) -> None:
    """Below the axes, where it hides no curve; a single label says nothing that the caption does not."""
    from matplotlib.patches import Patch

    if len(colours) > 1:
        patches = [Patch(color=colour) for colour in colours.values()]
        labels = [_short(label).lstrip("_") for label in colours]  # matplotlib hides a leading underscore
        compact: Any = {"frameon": False, "handlelength": 0.9, "handleheight": 0.7, "columnspacing": 1.2}
        columns = _legend_columns(colours)
        canvas.legend(patches, labels, loc="outside lower center", ncols=columns, **compact)


def _legend_columns(colours: dict[str, str]) -> int:
    return max(1, min(len(colours), 56 // (max(map(len, map(_short, colours))) + 4)))


def _legend_height(colours: dict[str, str]) -> float:
    """px that the legend adds to a drawing."""
    return 0 if len(colours) < 2 else 16.0 * -(-len(colours) // _legend_columns(colours))


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


def _short(text: str, most: int = 24) -> str:
    clean = one_line(text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def _figure(canvas: "Canvas", name: str, caption: str) -> Figure:
    """Writes the drawing without dates, licence blocks, fonts, repeated ids and needless digits."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    canvas.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    body = text[text.index("</defs>") + len("</defs>") : text.rindex("</svg>")].replace(INK, "currentColor")
    body = re.sub(r'<g id="[^"]*">', "<g>", body)  # "axes_1" is in every drawing
    body = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", body)  # the page's font
    body = re.sub(r"font-family: [^;\"]*;", "", body).replace("xlink:href=", "href=")
    body = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda found: _two_decimals(found.group()), body)
    width, height = (72 * float(inches) for inches in canvas.get_size_inches())
    return Figure(name=name, body=re.sub(r"\n\s*", "\n", body), width=width, height=height, caption=caption)


def _two_decimals(text: str) -> str:
    return re.sub(r"(\d\.\d\d)\d+", r"\1", text)
