"""Render a report as one self-contained HTML page from report.html.j2, report.css and report.js."""

import base64
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from clipx.utils.figures import COLOURS
from evaluation.report.blocks import Document, Figure, Table, shown
from evaluation.report.text import LATEX

MAX_UNWRAPPED = 36  # characters; a column with longer texts wraps
# CSS line styles of the colour samples beside the checkboxes that hide curves, in the order of figures.DASHES
BORDERS = ("solid", "dashed", "dotted", "double")


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
    """Return label, colour and style of each curve that can be switched off, as JSON; None if there are none."""
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

    rows = [[value(cell) for cell in row] for row in figure.data.rows]
    short = [[None if cell == above else cell for cell, above in zip(*pair, strict=True)] for pair in pairwise(rows)]
    curves = {key: [shown(label), seed] for key, (label, seed) in figure.curves.items()}
    return {"columns": [*map(shown, figure.data.columns)], "rows": [*rows[:1], *short], "curves": curves}
