"""Render a report as one self-contained HTML page from report.html.j2, report.css and report.js."""

import base64
import json
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from clipx.utils.figures import COLOURS
from evaluation.report.blocks import Cell, Data, Document, Figure, Table
from evaluation.report.render.latex import SPECIAL
from evaluation.types import printable_line

MAX_UNWRAPPED = 36  # characters; a column with longer texts wraps
# CSS line styles of the colour samples beside the checkboxes that hide curves, in the order of figures.svg.DASHES
BORDERS = ("solid", "dashed", "dotted", "double")


def render_html(document: Document) -> str:
    """Return the whole page; all texts are escaped and free of control characters."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: printable_line(value) if type(value) is str else value,  # leaves Markup as it is
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        kind=lambda block: type(block).__name__,
        column_classes=_column_classes,
        percent=lambda fraction: f"{100 * min(1.0, max(0.0, fraction)):.2f}",
        base64=lambda content: base64.b64encode(content).decode(),
        curves=_curves,
        json=_for_json,
    )
    return environment.get_template("report.html.j2").render(document=document, latex=SPECIAL).lstrip()


def _curves(figure: Figure) -> str | None:
    """Return label, colour and style of each curve that can be switched off, as JSON; None if there are none."""
    curves = enumerate(figure.curves.items())
    styled = [
        [printable_line(label), colour, BORDERS[at // len(COLOURS) % len(BORDERS)]] for at, (label, colour) in curves
    ]
    return json.dumps(styled, ensure_ascii=False) if styled else None


def _for_json(data: Data) -> dict[str, list[Any]]:
    """Return the data with six significant digits of fractions. JSON has no NaN: such values are empty."""
    rows = [[_value(value) for value in row] for row in data.rows]
    return {"columns": [printable_line(name) for name in data.columns], "rows": rows}


def _value(value: str | float) -> str | float:
    if isinstance(value, str):
        return printable_line(value)
    if isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else ""


def _column_classes(table: Table) -> list[str | None]:
    return [_column_class(name, [row[at] for row in table.rows]) for at, name in enumerate(table.columns)]


def _column_class(name: str, cells: list[Cell]) -> str | None:
    """Return the CSS class: numbers are right-aligned, even if some are missing; long texts wrap."""
    if any(cell.sort is not None for cell in cells):
        return "n value" if name == "Value" else "n"
    return "long" if any(max(len(cell.text), len(cell.note)) > MAX_UNWRAPPED for cell in cells) else None
