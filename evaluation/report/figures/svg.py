"""Shared by all figures: matplotlib settings, colours, legend, SVG output."""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from evaluation.report.blocks import Figure
from evaluation.types import printable_line

INK = "#010203"  # placeholder; replaced by currentColor, so that lines and text get the page's text colour
COLOURS = ("#3d85c8", "#dd7a28", "#2a9d72", "#c2589a", "#8b72d6", "#a88a1c", "#3fa0b0", "#d3505f")
FONT = 10.0  # px
DASHED = (0, (4, 3))  # line style
MAX_X_TICKS = 6  # with more, labels such as -0.0425 would touch


@dataclass(frozen=True)
class Drawing:
    """A matplotlib figure that is being drawn."""

    name: str  # of the figure's file, without suffix
    canvas: Any  # matplotlib.figure.Figure
    axes: Any  # matplotlib.axes.Axes
    colours: dict[str, str]  # label -> colour

    def to_figure(self, caption: str, x: str = "", y: str = "") -> Figure:
        """Label the axes, add the legend and return the SVG, without metadata, fonts, repeated ids and extra digits."""
        self.axes.set_xlabel(x)
        self.axes.set_ylabel(y)
        if len(self.colours) > 1:  # a single label is named in the caption
            self._add_legend()
        buffer = io.StringIO()
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self.canvas.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
        text = buffer.getvalue()
        body = text[text.index("</defs>") + len("</defs>") : text.rindex("</svg>")].replace(INK, "currentColor")
        body = re.sub(r'<g id="[^"]*">', "<g>", body)  # every drawing has the id "axes_1"
        body = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", body)  # use the page's font
        body = re.sub(r"font-family: [^;\"]*;", "", body).replace("xlink:href=", "href=")
        body = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda m: re.sub(r"(\d\.\d\d)\d+", r"\1", m.group()), body)
        width, height = (72 * float(inches) for inches in self.canvas.get_size_inches())
        return Figure(self.name, re.sub(r"\n\s*", "\n", body), width, height, caption)

    def _add_legend(self) -> None:
        """Add the legend below the axes, where it hides no curve."""
        from matplotlib.patches import Patch

        patches = [Patch(color=colour) for colour in self.colours.values()]
        labels = [label.lstrip("_") for label in short_all(self.colours)]  # matplotlib hides labels with a leading _
        compact: Any = {"frameon": False, "handlelength": 0.9, "handleheight": 0.7, "columnspacing": 1.2}
        columns = _legend_columns(list(self.colours))
        self.canvas.legend(patches, labels, loc="outside lower center", ncols=columns, **compact)


@contextmanager
def drawing(name: str, width: float, height: float, labels: Iterable[str] = ()) -> Iterator[tuple[Drawing, Any]]:
    """Yield an empty drawing and its axes; restore matplotlib's options afterwards.

    `width`, `height`: px. A legend, drawn for two labels or more, increases the height.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas  # pyplot has global state

    ink = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), INK)
    options: Any = {
        **ink,
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # ids are reproducible, and differ between the figures of a page
        "text.parse_math": False,  # captions and names may hold a $
        "axes.unicode_minus": False,
        "font.size": FONT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.7,
    }
    unique = list(dict.fromkeys(labels))
    colours = {label: COLOURS[at % len(COLOURS)] for at, label in enumerate(unique)}
    if len(unique) > 1:
        height += 16 * math.ceil(len(unique) / _legend_columns(unique))
    with rc_context(options), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser has the glyph
        canvas = Canvas(figsize=(width / 72, height / 72), layout="constrained")
        axes = canvas.add_subplot()
        yield Drawing(name, canvas, axes, colours), axes


def _legend_columns(labels: list[str]) -> int:
    return max(1, min(len(labels), 56 // (max(len(short(label)) for label in labels) + 4)))


def short(text: str, length: int = 24) -> str:
    """Return the text on one line, cut to `length` characters."""
    line = printable_line(text)
    return line if len(line) <= length else line[: length - 1] + "…"


def short_all(texts: Iterable[str], length: int = 24) -> list[str]:
    """Shorten all texts at the end, the beginning or the middle: whichever leaves the most different texts."""
    lines = [printable_line(text) for text in texts]
    half = (length - 1) // 2
    cuts: list[Callable[[str], str]] = [
        lambda line: f"{line[: length - 1]}…",
        lambda line: f"…{line[1 - length :]}",
        lambda line: f"{line[:half]}…{line[-half:]}",
    ]
    found = [[line if len(line) <= length else cut(line) for line in lines] for cut in cuts]
    return max(found, key=lambda cut_lines: len(set(cut_lines)))


def slug(text: str) -> str:
    """Return the text as part of a file name: letters, digits, dots, dashes and underscores only."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:60].strip("-.")
