"""compare.tex compiles: what pdflatex would refuse does not occur. Once checked with pdfTeX 1.40, LaTeX 2022-11."""

import re

import pytest

from evaluation.report.blocks import Cell, Table
from evaluation.report.render.latex import render_latex

# letters with accents that LaTeX's default font lacks
REFUSED = "ÐðÞþĄęŋŦſ“”«»€図😀"


def rows(latex: str) -> list[str]:
    return [line for line in latex.splitlines() if line.endswith(r" \\")]


@pytest.mark.parametrize("sign", [chr(c) for c in range(32, 127)] + list("üÉñß×→τζ≥≤–▲" + REFUSED))
def test_every_sign_gives_a_table_that_latex_reads(sign: str) -> None:
    cells = [[Cell(sign), Cell(f"a{sign}b")], [Cell(f"[{sign}]"), Cell("0.5", 0.5, note="[0, 1]")]]
    latex = render_latex(f"of {sign}", Table(["name", sign], cells))
    assert not set(REFUSED) & set(latex)
    assert len(rows(latex)) == 3
    for row in rows(latex):
        assert len(re.findall(r"(?<!\\)&", row)) == 1, "one column separator"
        assert not row.startswith("["), "it would be an option of the line before"
    plain = re.sub(r"\\[&%$#_{}]|\\text\w+\{\}|\\begin\{tabular\}\{\w+\}", "", latex)
    assert plain.count("{") == plain.count("}")
    assert not re.search(r"[%#_~^]", plain), "special characters are escaped"
    assert len(re.findall(r"\$", plain)) % 2 == 0


def test_accents_are_kept_or_dropped_but_no_letter_is_lost() -> None:
    latex = render_latex("", Table(["Köhler ę 図 τ"], []))
    assert r"Köhler e ? $\tau$" in latex
