"""Building blocks of a report. The HTML and the text renderers show the same blocks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from clipx.errors import printable_line

Tone = Literal["", "good", "bad", "neutral", "muted"]
Numbers = Sequence[Sequence[str | float]]

FOLDERS = re.compile(r"(?<![\w.~<])(?<!:/)/(?:[^/\s'\"<>]+/)+")  # of an absolute path, also in hf:/a/b; not of a URL


@dataclass(frozen=True)
class IntervalBar:
    """A value with its 95% interval, drawn on an axis from 0 to 1."""

    low: float
    value: float
    high: float
    chance: float | None


@dataclass(frozen=True)
class Cell:
    """A table cell. Its texts may hold user data: renderers escape them."""

    text: str
    sort: float | None = None  # full-precision number for sorting; a column with such cells is right-aligned
    tone: Tone = ""
    bar: IntervalBar | None = None  # HTML only
    note: str = ""  # small second line
    images: tuple[str, ...] = ()  # data URIs, above the text


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class KeyValues:
    """Pairs of a label and a value."""

    pairs: list[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """A table; each row has as many cells as there are columns."""

    columns: list[str]
    rows: list[list[Cell]]

    @property
    def numeric(self) -> list[bool]:
        """For each column, True if a cell is a number: the column is then right-aligned, even if some are missing."""
        return [any(row[at].sort is not None for row in self.rows) for at in range(len(self.columns))]


@dataclass(frozen=True)
class Figure:
    """An SVG drawing. Lines and text are `currentColor`, so it suits light and dark pages."""

    name: str  # file name without suffix, unique in the document
    body: str  # content of the <svg> element
    width: float  # px
    height: float  # px
    caption: str
    pdf: bytes = field(repr=False)  # the same drawing, for a paper
    columns: list[str]  # of the numbers behind the figure
    rows: Numbers  # each with as many values as there are columns
    colours: dict[str, str]  # label -> colour, as in the legend; {} without legend
    curves: dict[str, tuple[str, int | None]]  # id of an element in `body` -> label and seed of its curve
    legend: float  # px, height of the legend at the bottom; the HTML page replaces the legend by switches


@dataclass(frozen=True)
class SvgFile:
    """A complete SVG file with fixed colours on white."""

    name: str  # file name without suffix, unique in the document
    svg: bytes
    caption: str


@dataclass(frozen=True)
class Figures:
    """Figures, side by side if the page is wide enough."""

    figures: list[Figure] | list[SvgFile]


@dataclass(frozen=True)
class Details:
    """Blocks below a summary; a click on the summary folds or unfolds them."""

    summary: str
    blocks: list["Block"]
    open: bool = False


Block = Text | KeyValues | Table | Figures | Details


@dataclass(frozen=True)
class Section:
    """A heading with its blocks."""

    title: str
    blocks: list[Block]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lead: str  # main result, one or two sentences
    sections: list[Section]
    footer: str  # how to read the numbers
    command: str = ""  # command line that wrote the report; shown below each figure


def figures(drawn: list[Figure]) -> list[Block]:
    """Return a block with these figures; [] if there are none."""
    return [Figures(drawn)] if drawn else []


def shown(text: str) -> str:
    """Return text on one line without control characters and absolute folders: a report is passed on."""
    return FOLDERS.sub(".../", printable_line(text))
