"""Figures of a report: SVG that takes the page's colours, PDF, numbers; the charts that several sections draw."""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from clipx.errors import printable_line
from clipx.utils.figures import COLOURS, MAX_TICKS, STYLE, plain_ticks
from clipx.utils.files import content_hash
from evaluation.published import LOGS, PUBLIC, source
from evaluation.report.blocks import Figure, Numbers

INK = "#010203"  # placeholder; replaced by currentColor, so that lines and text get the page's text colour
# Labels after the eighth repeat the colours with other dashes and markers.
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS = "os^DvP"
COLUMN = 298  # px: at 0.8 pt per px, a column of 84 mm with type of 8 pt
FONT = 10.0  # px
DASHED: Any = {"color": INK, "linestyle": (0, (4, 3)), "linewidth": 0.9}
MAX_POINTS = 300  # per line; in longer lines, neighbours are averaged
MAX_POINTS_OF_ALL = 6_000  # per figure: with many lines, each has fewer points, so that the page stays small
MAX_LABELS = 40  # scatter plots with more points have no labels
PLACES = [((dx, dy), "right" if dx < 0 else "left") for dx in (5, -5) for dy in (0, 7, -7)]  # offset in px, alignment

Point = tuple[float, float]


@dataclass(frozen=True)
class Drawing:
    """A matplotlib figure that is being drawn."""

    name: str  # of the figure's file, without suffix
    canvas: Any  # matplotlib.figure.Figure
    axes: Any  # matplotlib.axes.Axes
    colours: dict[str, str]  # label -> colour
    curves: dict[str, tuple[str, int | None]] = field(default_factory=dict)  # gid of an artist -> label, seed

    def curve(self, label: str, seed: int | None = None) -> dict[str, Any]:
        """Return colour and id of a curve, which the page shows on hover and can switch off by label and seed."""
        self.curves[gid := f"curve-{len(self.curves)}"] = label, seed
        return {"color": self.colours.get(label, COLOURS[0]), "gid": gid}

    def style(self, label: str) -> dict[str, Any]:
        """Return dashes and marker of a label; no two of the first 32 labels share colour and dashes.

        A curve of a public log is dashed.
        """
        turn = 1 if label.startswith(PUBLIC) else list(self.colours).index(label) // len(COLOURS)
        return {"linestyle": DASHES[turn % len(DASHES)], "marker": MARKERS[turn % len(MARKERS)]}

    def to_figure(self, caption: str, columns: list[str], rows: Numbers, x: str = "", y: str = "") -> Figure:
        """Label the axes, add the legend and return the figure. No two figures of a page share an element's id."""
        from matplotlib.backends.backend_pdf import FigureCanvasPdf
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        self.axes.set(xlabel=x, ylabel=y)
        key = self._add_legend() if len(self.colours) > 1 else None  # a single label is named in the caption
        self.canvas.get_layout_engine().execute(self.canvas)  # also makes the ticks
        self.canvas.set_layout_engine("none")  # the same layout for all files
        legend = float(key.get_window_extent().y1) if key else 0.0
        drawn = {}
        for number, artist in enumerate(dict.fromkeys(self.canvas.findobj())):
            curve = self.curves.get(artist.get_gid())
            artist.set_gid(f"{self.name}-{number}")  # matplotlib's own ids, such as patch_1, are in every figure
            if curve:
                drawn[artist.get_gid()] = curve
            if hasattr(artist, "set_fontfeatures"):  # matplotlib 3.11 embeds a font again for its ligatures, such as fi
                artist.set_fontfeatures(["-liga"])
        text = _saved(FigureCanvasSVG(self.canvas).print_svg, "Date", "Creator", "Format", "Type").decode()
        body = _compact(text[text.index("</defs>") + len("</defs>") : text.rindex("</svg>")], drawn)
        width, height = (72 * float(inches) for inches in self.canvas.get_size_inches())
        pdf = _saved(FigureCanvasPdf(self.canvas).print_pdf, "Creator", "Producer", "CreationDate")
        keys = {label: colour.replace(INK, "currentColor") for label, colour in self.colours.items() if legend}
        return Figure(self.name, body, width, height, caption, pdf, columns, rows, keys, drawn, legend)

    def _add_legend(self) -> Any:
        """Add and return the legend, below the axes, where it hides no curve."""
        from matplotlib.lines import Line2D

        keys = [
            Line2D([], [], color=colour, linestyle=self.style(label)["linestyle"], linewidth=3)
            for label, colour in self.colours.items()
        ]
        labels = [label.lstrip("_") for label in shorten(self.colours)]  # matplotlib hides labels with a leading _
        place: Any = {"loc": "outside lower center", "ncols": _legend_columns(labels), "fontsize": FONT}
        return self.canvas.legend(keys, labels, handlelength=2, columnspacing=1.2, **place)


@contextmanager
def drawing(name: str, width: float, height: float, labels: Iterable[str] = ()) -> Iterator[tuple[Drawing, Any]]:
    """Yield an empty drawing and its axes; restore matplotlib's options afterwards.

    `width`, `height`: px. A legend, drawn for two labels or more, increases the height.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas  # not pyplot, which has global state

    ink = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor", "grid.color")
    options: Any = {
        **STYLE,
        **dict.fromkeys(ink, INK),
        **dict.fromkeys(("figure.facecolor", "figure.edgecolor", "axes.facecolor"), "none"),
        "font.family": "DejaVu Sans",  # comes with matplotlib
        "svg.hashsalt": name,  # the ids of clip paths and markers differ between the figures of a page
        "text.hinting": "no_hinting",  # as in the files: the layout is measured with the letters that are drawn
        "text.parse_math": False,  # captions and names may hold a $
    }
    unique = list(dict.fromkeys(labels))
    colours = {label: COLOURS[at % len(COLOURS)] for at, label in enumerate(unique)}
    for label in filter(lambda label: label.startswith(PUBLIC), unique):  # a public score has the colour of its arm
        colours[label] = colours.get(label.removeprefix(PUBLIC).partition(" ")[0], colours[label])
    if len(unique) > 1:
        height += 16 * math.ceil(len(unique) / _legend_columns(shorten(unique)))
    with rc_context(options), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser has the glyph
        canvas = Canvas(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        axes = canvas.add_subplot()
        yield Drawing(name, canvas, axes, colours), axes


def _saved(print_file: Callable[..., None], *unwanted: str) -> bytes:
    """Return the drawing's file without the `unwanted` metadata, so that equal drawings have equal bytes."""
    buffer = io.BytesIO()
    print_file(buffer, metadata=dict.fromkeys(unwanted))  # not savefig, which draws twice
    return buffer.getvalue()


def _compact(body: str, drawn: Mapping[str, object]) -> str:
    """Return the drawing in the page's colour with hundredths of a px, without ids of others than `drawn` curves.

    That is half of matplotlib's bytes. The page sets the font.
    """
    body = body.replace(INK, "currentColor").replace("xlink:href=", "href=")
    body = re.sub(r" font-family: [^;\"]*;", "", body)
    body = re.sub(r'<g id="([^"]*)"', lambda found: found[0] if found[1] in drawn else "<g", body)
    body = re.sub(r' (?:d|x|y)="[^"]*"', _rounded, body)
    return re.sub(r"\s*\n\s*", "\n", body)


def _rounded(attribute: re.Match[str]) -> str:
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", attribute[0])


def _legend_columns(labels: list[str]) -> int:
    characters = max(map(len, labels)) + 4  # 4: the colour key and the spaces
    return max(1, min(len(labels), 49 // characters))  # 49 characters fit on a line of COLUMN px


def shorten(texts: Iterable[str], length: int = 24) -> list[str]:
    """Return the texts on one line each; a long text is cut in its middle, because similar names differ at an end."""
    half = (length - 1) // 2
    lines = map(printable_line, texts)
    return [line if len(line) <= length else f"{line[:half]}…{line[-half:]}" for line in lines]


def slug(text: str) -> str:
    """Return the text as part of a file name: at most 60 letters, digits, dots, dashes and underscores.

    A longer text, or one with other letters, ends with a hash, so that different texts stay different.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    return safe if len(safe) <= 60 and text.isascii() else f"{safe[:51]}-{content_hash(text)[:8]}".lstrip("-")


@dataclass(frozen=True)
class Line:
    """A curve; lines with the same label share a colour."""

    label: str
    x: list[float]
    y: list[float]
    seed: int | None = None
    spread: Sequence[Point | None] = ()  # interval of each y, if it has one; () if none has

    @classmethod
    def of_finite(
        cls, label: str, points: Iterable[tuple[float | None, float | None]], seed: int | None = None
    ) -> "Line":
        """Return the line through the points with a known x and a finite y."""
        known = [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]
        return cls(label, [x for x, _ in known], [y for _, y in known], seed=seed)


def line_plot(
    name: str, caption: str, lines: list[Line], x: str, y: str, log_x: bool = False, log_y: bool = True
) -> Figure:
    """Draw lines. `log_y`: the y axis is logarithmic if all values are positive and span more than a factor of five."""
    most = min(MAX_POINTS, max(20, MAX_POINTS_OF_ALL // max(1, len(lines))))
    intervals = ["low", "high"] if any(line.spread for line in lines) else []
    unknown = ("",) * len(intervals)
    if any(line.label.startswith(PUBLIC) for line in lines):
        caption += f"; dashed: {source(LOGS)}"
    rows: list[list[str | float]] = []
    with drawing(name, COLUMN, 230, [line.label for line in lines]) as (plot, axes):
        for line in lines:
            xs, ys = _downsample(line.x, most), _downsample(line.y, most)
            curve = plot.curve(line.label, line.seed)
            axes.plot(xs, ys, alpha=0.9, markersize=4 if len(xs) <= 12 else 0, **plot.style(line.label), **curve)
            spread = line.spread or [None] * len(xs)
            seed = "" if line.seed is None else line.seed
            for at, value, ends in zip(xs, ys, spread, strict=True):
                rows.append([line.label, seed, at, value, *(ends or unknown)])
                if ends:
                    axes.plot([at, at], ends, linewidth=1, **curve)
        values = [value for line in lines for value in line.y]
        if log_y and values and min(values) > 0 and max(values) > 5 * min(values):
            axes.set_yscale("log")
            plain_ticks(axes.yaxis)
        if log_x:
            axes.set_xscale("log")
            plain_ticks(axes.xaxis)
        else:
            axes.locator_params(axis="x", nbins=MAX_TICKS)
        return plot.to_figure(caption, ["curve", "seed", x, y, *intervals], rows, x, y)


def _downsample(values: list[float], most: int) -> list[float]:
    size = -(-len(values) // most)
    return values if size <= 1 else [fmean(values[at : at + size]) for at in range(0, len(values), size)]


def scatter_plot(name: str, caption: str, points: dict[str, Point], x: str, y: str) -> Figure:
    """Draw labelled points; `x` and `y` name the axes."""
    with drawing(name, COLUMN, 260) as (plot, axes):
        for label, point in points.items():
            axes.plot(*point, "o", alpha=0.8, **plot.curve(label))
        axes.locator_params(nbins=MAX_TICKS)
        axes.margins(0.12)
        if len(points) <= MAX_LABELS:
            add_labels(plot, points)
        return plot.to_figure(caption, ["point", x, y], [[label, *point] for label, point in points.items()], x, y)


def add_labels(plot: Drawing, points: dict[str, Point]) -> None:
    """Label each point where the label covers no other label and no point; leave it out if there is no such place."""
    plot.canvas.get_layout_engine().execute(plot.canvas)  # computes the positions in pixels
    dots = plot.axes.transData.transform(list(points.values()))
    taken: list[Any] = []  # boxes of labels
    for label, point in zip(shorten(points), points.values(), strict=True):
        text = plot.axes.annotate(label, point, (0, 0), textcoords="offset points", va="center", fontsize=FONT - 2)
        for offset, side in PLACES:
            text.set(position=offset, horizontalalignment=side)
            box = text.get_window_extent()
            if not box.count_overlaps(taken) and not box.count_contains(dots):
                taken.append(box)
                break
        else:
            text.remove()
