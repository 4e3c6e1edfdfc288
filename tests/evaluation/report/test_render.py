"""Markdown and LaTeX: compare.tex has nothing that pdflatex refuses (once compiled with pdfTeX 1.40, LaTeX 2022-11)."""

import re

import pytest

from evaluation.report.blocks import Cell, Table, shown
from evaluation.report.render import render_latex

REFUSED = "ÐðÞþĄęŋŦſ“”«»€図😀"  # characters that LaTeX's default font lacks


def rows(latex: str) -> list[str]:
    return [line for line in latex.splitlines() if line.endswith(r" \\")]


@pytest.mark.parametrize("characters", ["".join(map(chr, range(32, 127))), "üÉñß×→τζ≥≤–▲", REFUSED])
def test_every_character_gives_a_table_that_latex_reads(characters: str) -> None:
    for character in characters:
        first = [Cell(character), Cell(f"a{character}b")]
        second = [Cell(f"[{character}]"), Cell("0.5", 0.5, note="[0, 1]")]
        latex = render_latex(f"of {character}", Table(["name", character], [first, second]))
        assert not set(REFUSED) & set(latex)
        assert len(rows(latex)) == 3
        for row in rows(latex):
            assert len(re.findall(r"(?<!\\)&", row)) == 1, "one column separator"
            assert not row.startswith("["), "LaTeX would read [ as an option of the line break before it"
        plain = re.sub(r"\\[&%$#_{}]|\\text\w+\{\}|\\begin\{tabular\}\{\w+\}", "", latex)
        assert plain.count("{") == plain.count("}")
        assert not re.search(r"[%#_~^]", plain), "special characters are escaped"
        assert len(re.findall(r"\$", plain)) % 2 == 0


def test_accents_are_kept_or_dropped_but_no_letter_is_lost() -> None:
    latex = render_latex("", Table(["Köhler ę 図 τ"], []))
    assert r"Köhler e ? $\tau$" in latex


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("in /home/me/runs/a/s0, /b/c", "in .../s0, .../c"),
        ("hf:/home/me/bert", "hf:.../bert"),
        ("open_clip:ViT-B-32//home/me/w.pt", "open_clip:ViT-B-32/.../w.pt"),
        ("file:///home/me/a", "file://.../a"),
        *((kept, kept) for kept in ("https://a.org/b/c", "s3://a/b/c", "runs/a/s0", "../a/b", "~/a/b", "a / b")),
    ],
)
def test_a_report_names_no_absolute_folder(text: str, without: str) -> None:
    assert shown(text) == without
