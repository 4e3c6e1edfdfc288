"""What a report is made of; report_html and report_markdown render the same blocks, so that they agree."""

from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["", "good", "bad", "muted"]


@dataclass(frozen=True)
class Span:
    """An interval on the axis from 0 to 1."""

    low: float
    value: float
    high: float
    chance: float | None


@dataclass(frozen=True)
class Cell:
    """One entry of a table; `text` is user data, renderers escape it."""

    text: str
    sort: float | None = None  # the number behind the text, at full precision; right-aligned if there
    tone: Tone = ""
    span: Span | None = None  # drawn beside the text where the medium can
    note: str = ""  # second line, smaller


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Facts:
    """Label and value pairs."""

    pairs: list[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """Rows as long as `columns`."""

    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Figure:
    """An SVG drawing whose strokes and text are `currentColor`, so that it suits light and dark pages."""

    name: str  # file name without suffix, unique in the document
    body: str  # what stands between <svg> and </svg>
    width: float  # natural size, px
    height: float
    caption: str


@dataclass(frozen=True)
class Figures:
    """Drawings side by side where there is room."""

    figures: list[Figure]


@dataclass(frozen=True)
class Picture:
    """A finished SVG file on white ground, with colours of its own."""

    name: str  # file name without suffix, unique in the document
    svg: bytes
    caption: str


@dataclass(frozen=True)
class Pictures:
    """Files side by side where there is room."""

    pictures: list[Picture]


@dataclass(frozen=True)
class Item:
    """A caption or a picture of a retrieval example."""

    text: str
    src: str  # data URI of an image, "" for a caption
    similarity: float | None  # None for the query itself
    correct: bool


@dataclass(frozen=True)
class Query:
    """What was looked for, what was found (best first), and where the first correct answer stands."""

    query: Item
    answers: list[Item]
    rank: int  # 1 = found first

    @property
    def place(self) -> str:
        """The rank for a reader; an answer without a similarity (NaN) has a rank beyond any data set."""
        return f"rank {self.rank:,}" if self.rank < 2**48 else "not found"


@dataclass(frozen=True)
class Gallery:
    """Retrieval examples in one direction."""

    title: str
    queries: list[Query]


@dataclass(frozen=True)
class Details:
    """Blocks that are folded until asked for."""

    summary: str
    blocks: list["Block"]
    open: bool = False


Block = Text | Facts | Table | Figures | Pictures | Gallery | Details


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    """The whole report."""

    title: str
    lead: str  # one sentence: what came out
    sections: list[Section]
    foot: str  # how to read it
