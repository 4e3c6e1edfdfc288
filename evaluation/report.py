"""`clipx report`: run directories in, one report as Markdown, HTML and CSV out."""

import csv
import io
from dataclasses import dataclass, fields
from pathlib import Path

from clipx.atomic import write_text
from evaluation import report_html, report_markdown, report_sections, runs
from evaluation.claims.evidence import gather
from evaluation.runs import Run
from evaluation.types import Result

FILES = "report_files"  # figures of the Markdown page


@dataclass(frozen=True)
class Report:
    """The files that were written."""

    html: Path  # self-contained
    markdown: Path
    csv: Path  # every result row
    figures: list[Path]  # what the Markdown page shows


def write(paths: list[Path], out: Path) -> Report:
    """Reports on all runs at or below `paths` in the folder `out`: report.html, report.md, report.csv.

    The same runs give the same bytes.

    Raises:
        UserError: a path holds no run, or a file of a run is damaged; names it and what to type.
    """
    found = runs.find(paths)
    document = report_sections.build(found, gather(found, paths))
    markdown, files = report_markdown.page(document, FILES)
    figures = out / FILES
    figures.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (figures / name).write_bytes(content)
    report = Report(
        html=out / "report.html",
        markdown=out / "report.md",
        csv=out / "report.csv",
        figures=[figures / name for name in files],
    )
    write_text(report.html, report_html.page(document))
    write_text(report.markdown, markdown)
    write_text(report.csv, table(found))
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
