"""Render a table as LaTeX, for a paper that uses \\usepackage{booktabs}."""

import re

from evaluation.report.blocks import Cell, Table
from evaluation.types import printable_line

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "▲ ": r"$\uparrow$ ",
    "▼ ": r"$\downarrow$ ",
}


def render_latex(caption: str, table: Table) -> str:
    """Return a table environment. Columns of numbers are right-aligned; a number's note follows it."""
    numeric = [any(row[at].sort is not None for row in table.rows) for at in range(len(table.columns))]
    columns = "".join("r" if right else "l" for right in numeric)
    lines = [" & ".join(_escape(name) for name in table.columns), r"\midrule"]
    lines += [" & ".join(_cell(cell, right) for cell, right in zip(row, numeric, strict=True)) for row in table.rows]
    body = "\n".join(line if line.startswith(r"\midrule") else rf"{line} \\" for line in lines)
    return (
        f"\\begin{{table}}\n\\caption{{{_escape(caption)}}}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n"
        f"{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )


def _cell(cell: Cell, is_number: bool) -> str:
    return _escape(f"{cell.text} {cell.note}" if is_number and cell.note else cell.text)


def _escape(text: str) -> str:
    """Escape special characters, and [ at the beginning, which LaTeX would read as an option of the line break."""
    pattern = "|".join(map(re.escape, SPECIAL))
    escaped = re.sub(pattern, lambda match: SPECIAL[match.group()], printable_line(text))
    return f"{{{escaped}}}" if escaped.startswith("[") else escaped
