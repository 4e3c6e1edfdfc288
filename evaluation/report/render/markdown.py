"""A report as Markdown, with its drawings and pictures as files beside it."""

import base64
import hashlib
import re
from html import escape
from typing import assert_never

from evaluation.report.blocks import (
    Block,
    Cell,
    Details,
    Document,
    Facts,
    Figure,
    Figures,
    Gallery,
    Item,
    Picture,
    Pictures,
    Query,
    Table,
    Text,
)
from evaluation.types import printable_line

SVG_STYLE = (  # read as a file, so it brings its own colours
    "<style>svg{color:#3d444d;font-family:system-ui,sans-serif;stroke-linejoin:round}"
    "@media(prefers-color-scheme:dark){svg{color:#c4cad1}}</style>"
)


def page(document: Document, folder: str) -> tuple[str, dict[str, bytes]]:
    """The text, and name -> content of the files that it expects in `folder` beside it."""
    files: dict[str, bytes] = {}
    parts = [f"# {_text(document.title)}", _text(document.lead)]
    for section in document.sections:
        parts += [f"## {_text(section.title)}", *_blocks(section.blocks, folder, files)]
    return "\n\n".join(parts) + "\n", files


def _text(text: str) -> str:
    """No tag, table bar, emphasis, code or link can come out of user text."""
    return re.sub(r"([\\|`*\[\]])", r"\\\1", escape(printable_line(text), quote=False))


def _blocks(blocks: list[Block], folder: str, files: dict[str, bytes]) -> list[str]:
    return [part for block in blocks for part in _block(block, folder, files)]


def _block(block: Block, folder: str, files: dict[str, bytes]) -> list[str]:
    match block:
        case Text(text):
            return [_text(text)]
        case Facts(pairs):
            return [_rows(["", ""], [[_text(key), _text(value)] for key, value in pairs])]
        case Table(columns, rows):
            return [_rows([_text(name) for name in columns], [[_cell(cell) for cell in row] for row in rows])]
        case Figures(figures):
            return [_figure(figure, folder, files) for figure in figures]
        case Pictures(pictures):
            return [_finished(picture, folder, files) for picture in pictures]
        case Gallery():
            return _gallery(block, folder, files)
        case Details(summary, blocks):
            inner = _blocks(blocks, folder, files)
            state = " open" if block.open else ""
            return [f"<details{state}><summary>{escape(printable_line(summary))}</summary>", *inner, "</details>"]
        case _:
            assert_never(block)


def _cell(cell: Cell) -> str:
    return _text(cell.text) + (f"<br>{_text(cell.note)}" if cell.note else "")


def _rows(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _figure(figure: Figure, folder: str, files: dict[str, bytes]) -> str:
    width, height = f"{figure.width:g}", f"{figure.height:g}"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{SVG_STYLE}{figure.body}</svg>\n'
    files[f"{figure.name}.svg"] = svg.encode()
    return f"![{_text(figure.caption)}]({folder}/{figure.name}.svg)\n\n{_text(figure.caption)}"


def _finished(picture: Picture, folder: str, files: dict[str, bytes]) -> str:
    files[f"{picture.name}.svg"] = picture.svg
    return f"![{_text(picture.caption)}]({folder}/{picture.name}.svg)\n\n{_text(picture.caption)}"


def _gallery(gallery: Gallery, folder: str, files: dict[str, bytes]) -> list[str]:
    most = max((len(query.answers) for query in gallery.queries), default=0)
    columns = ["Query", "Rank", *(str(place + 1) for place in range(most))]
    rows = []
    for query in gallery.queries:
        answers = [_answer(item, folder, files) for item in query.answers]
        rows.append([_asked(query, folder, files), query.place, *answers, *[""] * (most - len(answers))])
    return [f"### {_text(gallery.title)}", _rows(columns, rows)]


def _asked(query: Query, folder: str, files: dict[str, bytes]) -> str:
    return _picture(query.query.src, folder, files) if query.query.src else _text(query.query.text)


def _answer(item: Item, folder: str, files: dict[str, bytes]) -> str:
    sign = "✓ " if item.correct else ""
    shown = _picture(item.src, folder, files) if item.src else _text(item.text)
    return f"{shown}<br>{sign}{item.similarity:.2f}"


def _picture(src: str, folder: str, files: dict[str, bytes]) -> str:
    """Named after its content: the same picture is written once."""
    kind, _, data = src.removeprefix("data:image/").partition(";base64,")
    content = base64.b64decode(data)
    name = f"image-{hashlib.sha256(content).hexdigest()[:16]}.{kind.replace('jpeg', 'jpg')}"
    files[name] = content
    return f"![image]({folder}/{name})"
