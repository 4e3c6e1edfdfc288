"""What every figure of the report shares: ink that follows the page, colours, legend, SVG out."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evaluation.report.blocks import Figure
from evaluation.types import printable_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

INK = "#010203"  # stands for currentColor until the drawing is written
COLOURS = ("#3d85c8", "#dd7a28", "#2a9d72", "#c2589a", "#8b72d6", "#a88a1c", "#3fa0b0", "#d3505f")
FONT = 10.0  # px
LABELS = 6  # intervals of the x axis at most, so that numbers such as -0.0425 do not touch


@contextmanager
def drawing(name: str) -> Iterator[None]:
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


def canvas_of(width: float, height: float) -> tuple["Canvas", Any]:
    """A drawing of that many px; not pyplot's, so that no window system or global state is involved."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width / 72, height / 72), layout="constrained")
    return canvas, canvas.add_subplot()


def colours_of(labels: list[str]) -> dict[str, str]:
    return {label: COLOURS[at % len(COLOURS)] for at, label in enumerate(dict.fromkeys(labels))}


def legend(canvas: "Canvas", colours: dict[str, str]) -> None:
    """Below the axes, where it hides no curve; a single label says nothing that the caption does not."""
    from matplotlib.patches import Patch

    if len(colours) > 1:
        patches = [Patch(color=colour) for colour in colours.values()]
        labels = [short(label).lstrip("_") for label in colours]  # matplotlib hides a leading underscore
        compact: Any = {"frameon": False, "handlelength": 0.9, "handleheight": 0.7, "columnspacing": 1.2}
        columns = _legend_columns(colours)
        canvas.legend(patches, labels, loc="outside lower center", ncols=columns, **compact)


def _legend_columns(colours: dict[str, str]) -> int:
    return max(1, min(len(colours), 56 // (max(map(len, map(short, colours))) + 4)))


def legend_height(colours: dict[str, str]) -> float:
    """px that the legend adds to a drawing."""
    return 0 if len(colours) < 2 else 16.0 * -(-len(colours) // _legend_columns(colours))


def short(text: str, most: int = 24) -> str:
    clean = printable_line(text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def figure_of(canvas: "Canvas", name: str, caption: str) -> Figure:
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
