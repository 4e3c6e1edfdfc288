"""Render a table as LaTeX, for a paper that uses \\usepackage{booktabs}."""

import re
from unicodedata import normalize

from evaluation.report.blocks import Cell, Table
from evaluation.types import printable_line

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
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
PATTERN = "|".join(map(re.escape, SPECIAL))
PLAIN = re.compile(r"[\x00-\x7fÀ-ÏÑ-ÖØ-Ýß-ïñ-öø-ýÿ]")  # characters that LaTeX sets without further packages


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
    """Escape LaTeX's special characters; replace characters at which pdflatex fails: ę by e, 図 by ?.

    A text that begins with [ is put in braces, because LaTeX would read [ as an option of the line break before it.
    """
    escaped = "".join(SPECIAL.get(part, _plain(part)) for part in re.split(f"({PATTERN})", printable_line(text)))
    return f"{{{escaped}}}" if escaped.startswith("[") else escaped


def _plain(text: str) -> str:
    return "".join(
        c if PLAIN.match(c) else normalize("NFKD", c).encode("ascii", "ignore").decode() or "?" for c in text
    )
