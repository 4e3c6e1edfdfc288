"""A report as one self-contained HTML page: no network, no fonts, all user text escaped."""

import base64
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
    Section,
    Span,
    Table,
    Text,
)
from evaluation.report.render.style import SCRIPT, STYLE
from evaluation.types import printable_line

MOST_ON_A_LINE = 36  # characters of a text in a table


def page(document: Document) -> str:
    """The whole page."""
    title = _text(document.title)
    return "\n".join([
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',  # else the browser asks a server for one
        f"<title>{title} · clipx report</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body><main>",
        f'<header><p class="kind">clipx report</p><h1>{title}</h1>',
        f'<p class="lead">{_text(document.lead)}</p></header>',
        *(_section(section) for section in document.sections),
        f"<footer>{_text(document.foot)}</footer>",
        f"</main><script>{SCRIPT}</script></body>",
        "</html>",
        "",
    ])  # fmt: skip


def _text(text: str) -> str:
    return escape(printable_line(text), quote=True)


def _section(section: Section) -> str:
    return f"<section><h2>{_text(section.title)}</h2>\n{_blocks(section.blocks)}</section>"


def _blocks(blocks: list[Block]) -> str:
    return "".join(_block(block) + "\n" for block in blocks)


def _block(block: Block) -> str:
    match block:
        case Text(text, tone):
            return f'<p class="{tone}">{_text(text)}</p>' if tone else f"<p>{_text(text)}</p>"
        case Facts(pairs):
            inner = "".join(f"<div><dt>{_text(k)}</dt><dd>{_text(v)}</dd></div>" for k, v in pairs)
            return f"<dl>{inner}</dl>"
        case Table():
            return _table(block)
        case Figures(figures):
            return f'<div class="figures">{"".join(map(_figure, figures))}</div>'
        case Pictures(pictures):
            return f'<div class="figures">{"".join(map(_finished, pictures))}</div>'
        case Gallery(title, queries):
            inner = "".join(map(_query, queries))
            return f'<h3>{_text(title)}</h3><div class="gallery">{inner}</div>'
        case Details(summary, blocks, is_open):
            state = " open" if is_open else ""
            return f"<details{state}><summary>{_text(summary)}</summary>\n{_blocks(blocks)}</details>"
        case _:
            assert_never(block)


def _table(table: Table) -> str:
    kinds = [_kind(name, [row[at] for row in table.rows]) for at, name in enumerate(table.columns)]
    head = "".join(
        f'<th{_class(kind)} scope="col"><button type="button">{_text(name)}</button></th>'
        for name, kind in zip(table.columns, kinds, strict=True)
    )
    lines = ["<tr>" + "".join(map(_cell, row, kinds)) + "</tr>" for row in table.rows]
    body = "\n".join(lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _kind(name: str, cells: list[Cell]) -> str:
    """Numbers stand on the right, also where one is missing; long texts break into lines."""
    if any(cell.sort is not None for cell in cells):
        return "n value" if name == "Value" else "n"
    return "long" if any(max(len(cell.text), len(cell.note)) > MOST_ON_A_LINE for cell in cells) else ""


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _cell(cell: Cell, kind: str) -> str:
    sort = "" if cell.sort is None else f' data-sort="{cell.sort!r}"'
    text = _text(cell.text)
    if cell.tone in ("good", "bad") or (cell.tone and cell.text.startswith("●")):
        text = f'<span class="pill {cell.tone}">{text}</span>'
    elif cell.tone:
        text = f'<span class="{cell.tone}">{text}</span>'
    if cell.note:
        text += f'<br><span class="note">{_text(cell.note)}</span>'
    return f"<td{_class(kind)}{sort}>{text}{_span(cell.span) if cell.span else ''}</td>"


def _span(span: Span) -> str:
    """The interval on an axis from 0 to 1, with a tick at chance."""
    low, value, high = (100 * min(1.0, max(0.0, x)) for x in (span.low, span.value, span.high))
    tick = "" if span.chance is None else (
        f'<line x1="{100 * span.chance:.2f}" x2="{100 * span.chance:.2f}" y1="0" y2="14" '
        'stroke="currentColor" stroke-width="1.5"/>'
    )  # fmt: skip
    return (
        '<svg class="span" viewBox="-4 0 108 14" preserveAspectRatio="none" aria-hidden="true">'
        '<line x1="0" x2="100" y1="7" y2="7" stroke="currentColor" stroke-opacity=".2" stroke-width="2"/>'
        f'<line x1="{low:.2f}" x2="{high:.2f}" y1="7" y2="7" stroke="var(--accent)" stroke-opacity=".55" '
        'stroke-width="6" stroke-linecap="round"/>'
        f'<circle cx="{value:.2f}" cy="7" r="3.4" fill="var(--accent)"/>{tick}</svg>'
    )


def _figure(figure: Figure) -> str:
    width, height = figure.width, figure.height
    least = f"min-width:{0.9 * width:.0f}px;" if width > 340 else ""  # wide ones scroll on a phone
    return (
        f"<figure><figcaption>{_text(figure.caption)}</figcaption>"
        f'<svg viewBox="0 0 {width:g} {height:g}" style="{least}max-width:{1.5 * width:.0f}px" role="img" '
        f'aria-label="{_text(figure.caption)}">{figure.body}</svg></figure>'
    )


def _finished(picture: Picture) -> str:
    data, caption = base64.b64encode(picture.svg).decode(), _text(picture.caption)
    image = f'<img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
    return f'<figure class="paper"><figcaption>{caption}</figcaption>{image}</figure>'


def _query(query: Query) -> str:
    rank = f'<span class="pill{" good" if query.rank == 1 else ""}">{query.place}</span>'
    if query.query.src:
        answers = "".join(map(_caption, query.answers))
        shown = f'<div><img alt="query image" src="{escape(query.query.src)}">{rank}</div>'
        return f'<div class="query of-image">{shown}<ul class="texts">{answers}</ul></div>'
    answers = "".join(map(_picture, query.answers))
    asked = f'<div class="asked"><span>{_text(query.query.text)}</span>{rank}</div>'
    return f'<div class="query">{asked}<div class="images">{answers}</div></div>'


def _picture(item: Item) -> str:
    kind, sign = (' class="correct"', "✓ ") if item.correct else ("", "")
    alt = "correct image" if item.correct else "image"
    return f'<div{kind}><img alt="{alt}" src="{escape(item.src)}">{sign}{item.similarity:.2f}</div>'


def _caption(item: Item) -> str:
    kind, sign = (' class="correct"', "✓ ") if item.correct else ("", "")
    return f"<li{kind}><span>{sign}{item.similarity:.2f}</span><span>{_text(item.text)}</span></li>"
