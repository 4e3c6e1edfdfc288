"""Render a report as Markdown, with figures and images as separate files."""

import base64
import hashlib
import re
from html import escape
from typing import assert_never

from evaluation.report import blocks as doc
from evaluation.types import csv_text, printable_line

SVG_STYLE = (  # a file does not inherit the page's colours
    "<style>svg{color:#3d444d;font-family:system-ui,sans-serif;stroke-linejoin:round}"
    "@media(prefers-color-scheme:dark){svg{color:#c4cad1}}</style>"
)


def render_markdown(document: doc.Document, folder: str) -> tuple[str, dict[str, bytes]]:
    """Return the text, and the files it links to: name in `folder` -> content."""
    files: dict[str, bytes] = {}
    parts = [f"# {_escape(document.title)}", _escape(document.lead)]
    for section in document.sections:
        parts += [f"## {_escape(section.title)}", *_blocks(section.blocks, folder, files)]
    return "\n\n".join(parts) + "\n", files


def _escape(text: str) -> str:
    """Escape HTML, and the Markdown of tables, code, links and emphasis by `*`."""
    return re.sub(r"([\\|`*\[\]])", r"\\\1", escape(printable_line(text), quote=False))


def _blocks(blocks: list[doc.Block], folder: str, files: dict[str, bytes]) -> list[str]:
    return [part for block in blocks for part in _block(block, folder, files)]


def _block(block: doc.Block, folder: str, files: dict[str, bytes]) -> list[str]:
    match block:
        case doc.Text(text):
            return [_escape(text)]
        case doc.KeyValues(pairs):
            return [_table(["", ""], [[_escape(key), _escape(value)] for key, value in pairs])]
        case doc.Table(columns, rows):
            cells = [[_cell(cell, folder, files) for cell in row] for row in rows]
            return [_table([_escape(name) for name in columns], cells)]
        case doc.Figures(figures):
            return [_figure(figure, folder, files) for figure in figures]
        case doc.RetrievalExamples():
            return _retrieval_examples(block, folder, files)
        case doc.Details(summary, blocks):
            state = " open" if block.open else ""
            title = f"<details{state}><summary>{escape(printable_line(summary))}</summary>"
            return [title, *_blocks(blocks, folder, files), "</details>"]
        case _:
            assert_never(block)


def _cell(cell: doc.Cell, folder: str, files: dict[str, bytes]) -> str:
    images = [_image(image, folder, files) for image in cell.images]
    return "<br>".join([*images, *(_escape(text) for text in (cell.text, cell.note) if text)])


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _figure(figure: doc.Figure | doc.SvgFile, folder: str, files: dict[str, bytes]) -> str:
    if isinstance(figure, doc.SvgFile):
        files[f"{figure.name}.svg"] = figure.svg
        links = ""
    else:
        width, height = f"{figure.width:g}", f"{figure.height:g}"
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{SVG_STYLE}{figure.body}</svg>\n'
        files[f"{figure.name}.svg"] = svg.encode()
        files[f"{figure.name}.pdf"] = figure.pdf
        files[f"{figure.name}.csv"] = csv_text([figure.data.columns, *figure.data.rows]).encode()
        links = f" ([PDF]({folder}/{figure.name}.pdf), [CSV]({folder}/{figure.name}.csv))"
    caption = _escape(figure.caption)
    return f"![{caption}]({folder}/{figure.name}.svg)\n\n{caption}{links}"


def _retrieval_examples(block: doc.RetrievalExamples, folder: str, files: dict[str, bytes]) -> list[str]:
    width = max((len(example.answers) for example in block.examples), default=0)
    columns = ["Query", "Rank", *(str(rank + 1) for rank in range(width))]
    rows = []
    for example in block.examples:
        answers = [_answer(item, folder, files) for item in example.answers]
        query = _item(example.query, folder, files)
        rows.append([query, example.rank_text, *answers, *[""] * (width - len(answers))])
    return [f"### {_escape(block.title)}", _table(columns, rows)]


def _answer(item: doc.RetrievalItem, folder: str, files: dict[str, bytes]) -> str:
    return f"{_item(item, folder, files)}<br>{'✓ ' if item.correct else ''}{item.similarity:.2f}"


def _item(item: doc.RetrievalItem, folder: str, files: dict[str, bytes]) -> str:
    return _image(item.image, folder, files) if item.image else _escape(item.text)


def _image(uri: str, folder: str, files: dict[str, bytes]) -> str:
    """Return a link to the image. Files are named after their content, so each is written once."""
    kind, _, data = uri.removeprefix("data:image/").partition(";base64,")
    content = base64.b64decode(data)
    name = f"image-{hashlib.sha256(content).hexdigest()[:16]}.{kind.replace('jpeg', 'jpg')}"
    files[name] = content
    return f"![image]({folder}/{name})"
