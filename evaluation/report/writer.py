"""`clipx report`: run directories in, one report as Markdown, HTML and CSV out."""

import csv
import io
from dataclasses import dataclass, fields
from pathlib import Path

from clipx.utils.files import write_text
from evaluation.analyses.comparison import MethodComparison
from evaluation.claims.evidence import collect_evidence
from evaluation.report import contents
from evaluation.report.blocks import Document
from evaluation.report.render import html as report_html
from evaluation.report.render import markdown as report_markdown
from evaluation.report.sections import comparison
from evaluation.runs import reader
from evaluation.runs.reader import Run
from evaluation.types import Result


@dataclass(frozen=True)
class Report:
    """The files that were written."""

    html: Path  # self-contained
    markdown: Path
    csv: Path  # every result row; of a comparison a row a method and measure
    figures: list[Path]  # what the Markdown page shows


def write(paths: list[Path], out: Path) -> Report:
    """Reports on all runs at or below `paths` in the folder `out`: report.html, report.md, report.csv.

    The same runs give the same bytes.

    Raises:
        UserError: a path holds no run, or a file of a run is damaged; names it and what to type.
    """
    found = reader.find(paths)
    return _write(contents.build_report(found, collect_evidence(found, paths)), table(found), out, "report")


def write_comparison(found: list[MethodComparison], left_out: list[str], out: Path) -> Report:
    """The comparison in the folder `out`: compare.html, compare.md, compare.csv."""
    return _write(comparison.build_comparison(found, left_out), comparison.table(found), out, "compare")


def _write(document: Document, rows: str, out: Path, name: str) -> Report:
    markdown, files = report_markdown.page(document, f"{name}_files")
    figures = out / f"{name}_files"
    figures.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (figures / file).write_bytes(content)
    report = Report(
        html=out / f"{name}.html",
        markdown=out / f"{name}.md",
        csv=out / f"{name}.csv",
        figures=[figures / file for file in files],
    )
    write_text(report.html, report_html.page(document))
    write_text(report.markdown, markdown)
    write_text(report.csv, rows)
    return report


def table(found: list[Run]) -> str:
    """All result rows as CSV at full precision: run, its folder, the fields of Result, a column a hash."""
    hashes = list(dict.fromkeys(key for run in found for row in run.results for key in row.hashes))
    names = [field.name for field in fields(Result) if field.name != "hashes"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "folder", *names, *(f"hash_{key}" for key in hashes)])
    for run in found:
        for row in run.results:
            values = [getattr(row, name) for name in names]
            writer.writerow([run.name, run.path, *values, *(row.hashes.get(key, "") for key in hashes)])
    return text.getvalue()
