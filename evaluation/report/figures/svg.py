"""Shared by all figures: matplotlib settings, colours, legend, output as SVG and PDF."""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any

from clipx.utils.figures import COLOURS, STYLE
from clipx.utils.files import content_hash
from evaluation.report.blocks import Data, Figure
from evaluation.types import printable_line

INK = "#010203"  # placeholder; replaced by currentColor, so that lines and text get the page's text colour
# Labels after the eighth repeat the colours with other dashes and markers.
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS = "os^DvP"
FONT = 10.0  # px
DASHED = (0, (4, 3))  # line style


@dataclass(frozen=True)
class Drawing:
    """A matplotlib figure that is being drawn."""

    name: str  # of the figure's file, without suffix
    canvas: Any  # matplotlib.figure.Figure
    axes: Any  # matplotlib.axes.Axes
    colours: dict[str, str]  # label -> colour
    named: list[str] = field(default_factory=list)  # labels given to curve_id, in order

    def style(self, label: str) -> dict[str, Any]:
        """Return colour, dashes and marker of a label; no two of the first 32 labels share colour and dashes."""
        turn = list(self.colours).index(label) // len(COLOURS)
        dashes, marker = DASHES[turn % len(DASHES)], MARKERS[turn % len(MARKERS)]
        return {"color": self.colours[label], "linestyle": dashes, "marker": marker}

    def curve_id(self, label: str, seed: int | None = None) -> str:
        """Return a group id for a curve; the page shows its label on hover and can switch it off by label and seed."""
        self.named.append(label)
        return f"curve-{len(self.named) - 1}-{'' if seed is None else seed}"

    def to_figure(self, caption: str, data: Data, x: str = "", y: str = "") -> Figure:
        """Label the axes, add the legend and return the figure.

        Its SVG has no metadata, no fonts, no ids that occur in other figures, and at most two decimals per number.
        """
        self.axes.set_xlabel(x)
        self.axes.set_ylabel(y)
        legend = self._add_legend() if len(self.colours) > 1 else 0.0  # a single label is named in the caption
        text = self._saved("svg", "Date", "Creator", "Format", "Type").decode()
        body = text[text.index("</defs>") + len("</defs>") : text.rindex("</svg>")].replace(INK, "currentColor")
        body = re.sub(r'<g id="[^"]*"/>', "", body)  # a tick without a mark
        body = re.sub(r'<g id="([^"]*)">', self._group, body)
        body = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", body)  # use the page's font
        body = re.sub(r"font-family: [^;\"]*;", "", body).replace("xlink:href=", "href=")
        body = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda m: re.sub(r"(\d\.\d\d)\d+", r"\1", m.group()), body)
        body = re.sub(r"\n\s*", "\n", body)
        width, height = (72 * float(inches) for inches in self.canvas.get_size_inches())
        pdf = self._saved("pdf", "Creator", "Producer", "CreationDate")
        curves = self.colours if legend and self.named else {}
        return Figure(self.name, body, width, height, caption, pdf, data, curves, legend)

    def _saved(self, file_format: str, *unwanted: str) -> bytes:
        """Return the drawing's file without the `unwanted` metadata, so that equal drawings have equal bytes."""
        buffer = io.BytesIO()
        self.canvas.savefig(buffer, format=file_format, transparent=True, metadata=dict.fromkeys(unwanted))
        return buffer.getvalue()

    def _group(self, match: re.Match[str]) -> str:
        """Return a group's opening tag without its id, because figures share ids; add label and seed to curves."""
        curve = re.fullmatch(r"curve-(\d+)-(\d*)", match[1])
        if not curve:
            return "<g>"
        label = escape(printable_line(self.named[int(curve[1])]))
        title = f"{label}, seed {curve[2]}" if curve[2] else label
        return f'<g data-label="{label}" data-seed="{curve[2]}"><title>{title}</title>'

    def _add_legend(self) -> float:
        """Add the legend below the axes, where it hides no curve; return its height in px."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        if len(self.colours) > len(COLOURS):  # colours repeat with other dashes
            styles = [self.style(label) for label in self.colours]
            keys: list[Any] = [Line2D([], [], c=one["color"], ls=one["linestyle"], lw=2) for one in styles]
        else:
            keys = [Patch(color=colour) for colour in self.colours.values()]
        labels = [label.lstrip("_") for label in short_all(self.colours)]  # matplotlib hides labels with a leading _
        length = 2 if len(self.colours) > len(COLOURS) else 0.9
        compact: Any = {"frameon": False, "handlelength": length, "handleheight": 0.7, "columnspacing": 1.2}
        columns = _legend_columns(list(self.colours))
        legend = self.canvas.legend(keys, labels, loc="outside lower center", ncols=columns, **compact)
        self.canvas.draw_without_rendering()
        return float(legend.get_window_extent().y1)


@contextmanager
def drawing(name: str, width: float, height: float, labels: Iterable[str] = ()) -> Iterator[tuple[Drawing, Any]]:
    """Yield an empty drawing and its axes; restore matplotlib's options afterwards.

    `width`, `height`: px. A legend, drawn for two labels or more, increases the height.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas  # not pyplot, which has global state

    ink = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), INK)
    options: Any = {
        **STYLE,
        **ink,
        "svg.hashsalt": name,  # ids are reproducible, and differ between the figures of a page
        "text.parse_math": False,  # captions and names may hold a $
        "axes.grid": False,
        "font.size": FONT,
    }
    unique = list(dict.fromkeys(labels))
    colours = {label: COLOURS[at % len(COLOURS)] for at, label in enumerate(unique)}
    if len(unique) > 1:
        height += 16 * math.ceil(len(unique) / _legend_columns(unique))
    with rc_context(options), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser has the glyph
        canvas = Canvas(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        axes = canvas.add_subplot()
        yield Drawing(name, canvas, axes, colours), axes


def _legend_columns(labels: list[str]) -> int:
    characters = max(map(len, short_all(labels))) + 4  # 4: the colour key and the spaces
    return max(1, min(len(labels), 56 // characters))  # 56 characters fit on a line of 340 px


def short_all(texts: Iterable[str], length: int = 24) -> list[str]:
    """Shorten all texts at the end, the beginning or the middle: whichever keeps the most texts distinct."""
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
    """Return the text as part of a file name: at most 60 letters, digits, dots, dashes and underscores.

    A longer text is cut and ends with a hash, so that different texts stay different.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    return safe if len(safe) <= 60 else f"{safe[:51]}-{content_hash(text)[:8]}"
