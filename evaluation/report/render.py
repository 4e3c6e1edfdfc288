"""Render a report: as one self-contained HTML page, as Markdown with figures in files, and its tables as LaTeX.

The template of the page is report.html.j2; report.css and report.js lie beside it.
"""

import base64
import json
import math
import re
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, assert_never
from unicodedata import normalize

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from clipx.utils.figures import COLOURS
from clipx.utils.files import content_hash
from evaluation.report import blocks as doc
from evaluation.report.blocks import Document, Figure, Table, shown
from evaluation.types import csv_text

MAX_UNWRAPPED = 36  # characters; a column with longer texts wraps
# CSS line styles of the colour samples beside the checkboxes that hide curves, in the order of figures.DASHES
BORDERS = ("solid", "dashed", "dotted", "double")
LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "▲ ": r"$\uparrow$ ",
    "▼ ": r"$\downarrow$ ",
    "→": r"$\rightarrow$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "τ": r"$\tau$",
    "ζ": r"$\zeta$",
    **{c: f"${c}$" for c in "<>|"},  # outside math, LaTeX's default font prints other characters for these
}
PATTERN = "|".join(map(re.escape, LATEX))
PLAIN = re.compile(r"[\x00-\x7fÀ-ÏÑ-ÖØ-Ýß-ïñ-öø-ýÿ]")  # characters that LaTeX sets without further packages
SVG_STYLE = (  # a file does not inherit the page's colours
    "<style>svg{color:#3d444d;stroke-linejoin:round}text{font-family:system-ui,sans-serif!important}"
    "@media(prefers-color-scheme:dark){svg{color:#c4cad1}}</style>"
)


def render_html(document: Document) -> str:
    """Return the whole page; all texts are escaped and free of control characters."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: shown(value) if type(value) is str else value,  # leaves Markup as it is
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        block_type=lambda block: type(block).__name__,
        column_classes=_column_classes,
        percent=lambda fraction: f"{100 * min(1.0, max(0.0, fraction)):.2f}",
        base64=lambda content: base64.b64encode(content).decode(),
        keys=_keys,
        for_json=_for_json,
    )
    return environment.get_template("report.html.j2").render(document=document, latex=LATEX).lstrip()


def _column_classes(table: Table) -> list[str | None]:
    """Return the CSS class of each column: numbers are right-aligned, long texts wrap."""
    classes: list[str | None] = []
    for at, (name, is_number) in enumerate(zip(table.columns, table.numeric, strict=True)):
        is_long = any(max(len(row[at].text), len(row[at].note)) > MAX_UNWRAPPED for row in table.rows)
        number = "n value" if name == "Value" else "n"
        classes.append(number if is_number else "long" if is_long else None)
    return classes


def _keys(figure: Figure) -> str | None:
    """Return label, colour and border of each curve of the legend, as JSON; None for a figure without curves."""
    labels = enumerate(figure.colours.items() if figure.curves else ())
    styled = [[shown(label), colour, BORDERS[at // len(COLOURS) % len(BORDERS)]] for at, (label, colour) in labels]
    return json.dumps(styled, ensure_ascii=False) if styled else None


def _for_json(figure: Figure) -> dict[str, Any]:
    """Return the figure's numbers, and its curves by the id of their element.

    Fractions have six significant digits. null is the value in the row above. JSON has no NaN: such values are empty.
    """

    def value(cell: str | float) -> str | float:
        if isinstance(cell, float):
            return float(f"{cell:.6g}") if math.isfinite(cell) else ""
        return shown(cell) if isinstance(cell, str) else cell

    rows = [[value(cell) for cell in row] for row in figure.rows]
    short = [[None if cell == above else cell for cell, above in zip(*pair, strict=True)] for pair in pairwise(rows)]
    curves = {key: [shown(label), seed] for key, (label, seed) in figure.curves.items()}
    return {"columns": [*map(shown, figure.columns)], "rows": [*rows[:1], *short], "curves": curves}


class Markdown:
    """Markdown of a document; `files` are those that it links to: name in `folder` -> content."""

    def __init__(self, document: doc.Document, folder: str) -> None:
        self.folder = folder
        self.files: dict[str, bytes] = {}
        paragraphs = [f"# {_escape(document.title)}", _escape(document.lead)]
        for section in document.sections:
            paragraphs += [f"## {_escape(section.title)}", *self._blocks(section.blocks)]
        self.text = "\n\n".join(paragraphs) + "\n"

    def _blocks(self, blocks: list[doc.Block]) -> list[str]:
        return [paragraph for block in blocks for paragraph in self._block(block)]

    def _block(self, block: doc.Block) -> list[str]:
        match block:
            case doc.Text(text):
                return [_escape(text)]
            case doc.KeyValues(pairs):
                return [_table(["", ""], [[_escape(key), _escape(value)] for key, value in pairs])]
            case doc.Table(columns, rows):
                return [
                    _table([_escape(name) for name in columns], [[self._cell(cell) for cell in row] for row in rows])
                ]
            case doc.Figures(figures):
                return [self._figure(figure) for figure in figures]
            case doc.Details(summary, blocks):
                state = " open" if block.open else ""
                title = f"<details{state}><summary>{escape(shown(summary))}</summary>"
                return [title, *self._blocks(blocks), "</details>"]
            case _:
                assert_never(block)

    def _cell(self, cell: doc.Cell) -> str:
        images = [self._image(image) for image in cell.images]
        return "<br>".join([*images, *(_escape(text) for text in (cell.text, cell.note) if text)])

    def _figure(self, figure: doc.Figure | doc.SvgFile) -> str:
        name, caption, links = figure.name, _escape(figure.caption), ""
        if isinstance(figure, doc.SvgFile):
            self.files[f"{name}.svg"] = figure.svg
        else:
            width, height = f"{figure.width:g}", f"{figure.height:g}"
            size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
            svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{SVG_STYLE}{figure.body}</svg>\n'
            self.files[f"{name}.svg"] = svg.encode()
            self.files[f"{name}.pdf"] = figure.pdf
            self.files[f"{name}.csv"] = csv_text([figure.columns, *figure.rows]).encode()
            links = f" ([PDF]({self.folder}/{name}.pdf), [CSV]({self.folder}/{name}.csv))"
        return f"![{caption}]({self.folder}/{name}.svg)\n\n{caption}{links}"

    def _image(self, uri: str) -> str:
        """Return a link to the image. Files are named after their content, so each is written once."""
        image_format, _, data = uri.removeprefix("data:image/").partition(";base64,")
        name = f"image-{content_hash(data)}.{image_format.replace('jpeg', 'jpg')}"
        self.files[name] = base64.b64decode(data)
        return f"![image]({self.folder}/{name})"


def _escape(text: str) -> str:
    """Escape HTML, and the Markdown of tables, code, links and emphasis by `*`."""
    return re.sub(r"([\\|`*\[\]])", r"\\\1", escape(shown(text), quote=False))


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def render_latex(caption: str, table: doc.Table) -> str:
    """Return a table environment, for a paper that uses \\usepackage{booktabs}.

    Columns of numbers are right-aligned; a number's note follows it.
    """
    lines = [
        [
            f"{cell.text} {cell.note}" if is_number and cell.note else cell.text
            for cell, is_number in zip(row, table.numeric, strict=True)
        ]
        for row in table.rows
    ]
    head, *body = (rf"{' & '.join(map(_latex, line))} \\" for line in [table.columns, *lines])
    columns = "".join("r" if right else "l" for right in table.numeric)
    start = ["\\begin{table}", rf"\caption{{{_latex(caption)}}}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head]
    return "\n".join([*start, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _latex(text: str) -> str:
    """Escape LaTeX's special characters; replace characters at which pdflatex fails: ę by e, 図 by ?.

    A text that begins with [ is put in braces, because LaTeX would read [ as an option of the line break before it.
    """
    escaped = "".join(LATEX.get(piece, _plain(piece)) for piece in re.split(f"({PATTERN})", shown(text)))
    return f"{{{escaped}}}" if escaped.startswith("[") else escaped


def _plain(text: str) -> str:
    return "".join(
        c if PLAIN.match(c) else normalize("NFKD", c).encode("ascii", "ignore").decode() or "?" for c in text
    )
