"""Write reports: read the runs, build the document, save it as HTML, Markdown and CSV."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from clipx.utils.files import write_text
from evaluation.claims.evidence import collect_evidence
from evaluation.compare.items import Pair
from evaluation.compare.ladders import Ladder
from evaluation.compare.methods import LeftOut, MethodComparison
from evaluation.reference.models import PublishedModel
from evaluation.report.blocks import Document
from evaluation.report.contents import build_report
from evaluation.report.pages.comparison import (
    build_comparison,
    comparison_table,
    ladder_table,
    ladder_title,
    names,
    ranking,
)
from evaluation.report.pages.disagreement import build_disagreement, disagreement_table
from evaluation.report.render.html import render_html
from evaluation.report.render.latex import render_latex
from evaluation.report.render.markdown import render_markdown
from evaluation.report.sections.published import Published
from evaluation.runs import reader
from evaluation.runs.reader import Run
from evaluation.types import Result, csv_text


@dataclass(frozen=True)
class ReportFiles:
    """Paths of a written report."""

    html: Path  # self-contained page
    markdown: Path
    # report: a row per result; compare: per method and metric; diff: per item that only one model has right
    csv: Path
    figures: list[Path]  # files that the Markdown page shows or links: SVG, PDF, CSV, images


def write_report(
    paths: list[Path],
    out: Path,
    limited: bool = False,
    reference: Sequence[PublishedModel] = (),
    command: str = "",
) -> ReportFiles:
    """Write the report on all runs at or below `paths` to report.html, report.md and report.csv in the folder `out`.

    The same runs give the same bytes. `limited`: include the rows of `clipx eval limit=N`. `reference`: published
    models beside the results; by default the nearest one. `command`: command line shown below each figure.

    Raises UserError: a path holds no run, or a file of a run is corrupt.
    """
    runs = reader.find(paths, limited=limited)
    published = Published(runs, reference)
    document = build_report(runs, collect_evidence(runs, paths), published)
    return _write(document, results_table(runs, out, published), out, "report", command)


def write_comparison(
    comparisons: list[MethodComparison], ladders: list[Ladder], left_out: list[LeftOut], out: Path, command: str = ""
) -> ReportFiles:
    """Write compare.html, compare.md, compare.csv and compare.tex to the folder `out`."""
    tables = [(ladder_title(ladder), ladder_table(ladder)) for ladder in ladders]
    tables += [(name, ranking(one)) for name, one in zip(names(comparisons), comparisons, strict=True) if one.ranked]
    write_text(out / "compare.tex", "\n".join(render_latex(caption, table) for caption, table in tables))
    document = build_comparison(comparisons, ladders, left_out)
    return _write(document, comparison_table(comparisons), out, "compare", command)


def write_disagreement(pairs: list[Pair], names: tuple[str, str], out: Path) -> ReportFiles:
    """Write diff.html, diff.md and diff.csv, which compare two models item by item, to the folder `out`."""
    return _write(build_disagreement(pairs, names), disagreement_table(pairs, names), out, "diff")


def _write(document: Document, table: list[list[object]], out: Path, name: str, command: str = "") -> ReportFiles:
    markdown, files = render_markdown(document, f"{name}_files")
    folder = out / f"{name}_files"
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    figures = [folder / file for file in files]
    report = ReportFiles(out / f"{name}.html", out / f"{name}.md", out / f"{name}.csv", figures)
    write_text(report.html, render_html(replace(document, command=command)))
    write_text(report.markdown, markdown)
    write_text(report.csv, csv_text(table))
    return report


def results_table(runs: list[Run], out: Path, published: Published) -> list[list[object]]:
    """Return a header and all result rows: run, folder relative to `out`, Result fields, published values, hashes."""
    hashes = list(dict.fromkeys(key for run in runs for row in run.results for key in row.hashes))
    names = [field.name for field in fields(Result) if field.name != "hashes"]
    table: list[list[object]] = [["run", "folder", *names, *published.csv_columns, *(f"hash_{key}" for key in hashes)]]
    for run in runs:
        for row in run.results:
            values = [getattr(row, name) for name in names] + published.csv_cells(run, row)
            table.append(
                [run.name, os.path.relpath(run.path, out), *values, *(row.hashes.get(key, "") for key in hashes)]
            )
    return table
