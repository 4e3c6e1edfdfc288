"""Write a report: choose title, summary and order of its sections; save it as HTML, Markdown and CSV."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from clipx.errors import UserError
from clipx.utils.files import write_bytes, write_text
from evaluation.claims.assess import outcomes
from evaluation.claims.evidence import Evidence, collect_evidence
from evaluation.claims.published import TABLES
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Outcome
from evaluation.report.blocks import Block, Document, Section, Text
from evaluation.report.render import Markdown, render_html
from evaluation.report.sections.claims import claims, claims_summary
from evaluation.report.sections.forgetting import forgetting
from evaluation.report.sections.papers import paper_figures, paper_tables, toy_problems
from evaluation.report.sections.results import (
    CSV,
    Nearest,
    all_results,
    headline_metrics,
    nearest_models,
    published_values,
    results,
    tone,
)
from evaluation.report.sections.settings import conditions, provenance, settings
from evaluation.report.sections.tasks import confusions, popularity, retrieval_examples
from evaluation.report.sections.training import training
from evaluation.runs import reader
from evaluation.runs.groups import MetricSummary, RunGroup, group_runs, summarise_metrics
from evaluation.runs.reader import Run, limited_note, other_data_note
from evaluation.runs.results import TRAINING_PAIRS
from evaluation.types import Result, csv_text, first_names

MAX_DETAILED = 12  # methods with confusions and retrieval examples: the page must stay below 15 MB
MAX_RESULTS = 2_000  # rows in the page; 10,000 have 6 MB, with their hashes
MAX_NAMES = 3  # methods or recipes named in the title; with more methods, tested claims come first
FOOTER = (
    "Accuracies, recalls and other shares are in per cent; distances and correlations are numbers. ▲ or ▼: the whole "
    "95% interval lies above or below chance. With three or more seeds this must hold for two intervals: Student's t "
    "over the seeds, and the mean of the seeds' bootstrap intervals. Click a column header to sort."
)


@dataclass(frozen=True)
class ReportFiles:
    """Paths of a written report."""

    html: Path  # self-contained page
    markdown: Path
    csv: Path  # report: a row per result; compare: per method and metric
    figures: list[Path]  # files that the Markdown page shows or links: SVG, PDF, CSV, images


@dataclass(frozen=True)
class Contents:
    """The runs of a report, in the forms that its sections read."""

    runs: list[Run]
    groups: list[RunGroup]
    metrics: list[MetricSummary]
    headline: list[MetricSummary]  # main metrics
    evidence: Evidence
    outcomes: list[Outcome]  # of all claims
    published: Nearest

    @property
    def tested(self) -> bool:
        """True if the runs test a claim."""
        return any(outcome.verdict != "not run" for outcome in self.outcomes)

    @property
    def many_results(self) -> bool:
        """True if the page leaves the single results and their hashes to report.csv, because it would be too large."""
        return sum(len(run.results) for run in self.runs) > MAX_RESULTS

    @property
    def has_paper_runs(self) -> bool:
        """True if the runs test a claim or belong to a paper's table."""
        return self.tested or any(table.recipe in self.evidence.runs for table in TABLES)


SECTIONS: dict[str, Callable[[Contents], list[Block]]] = {
    "Results": lambda c: results(c.headline, c.groups, c.published),
    "Gain and forgetting": lambda c: forgetting(c.groups),
    "Claims": lambda c: claims(c.evidence, c.outcomes) if c.tested or c.evidence.left_out else [],
    "Toy problems": lambda c: toy_problems(c.evidence, c.outcomes),
    "Tables of the papers": lambda c: paper_tables(c.evidence) if c.has_paper_runs else [],
    "Training conditions": lambda c: conditions(c.runs),
    "Figures of the papers": lambda c: paper_figures(c.groups, c.evidence, list_missing=c.has_paper_runs),
    "Settings": lambda c: settings(c.groups),
    "Training": lambda c: training(c.groups),
    "Most confused classes": lambda c: _detailed(c.groups, confusions(c.groups[:MAX_DETAILED])),
    "Learned popularity": lambda c: popularity(c.groups),
    "Retrieval examples": lambda c: _detailed(c.groups, retrieval_examples(c.groups[:MAX_DETAILED])),
    "All results": lambda c: all_results(c.groups, c.metrics, c.published, c.many_results),
    "Provenance": lambda c: provenance(c.groups, with_hashes=not c.many_results),
}
OF_A_STUDY = ("Claims", "Gain and forgetting", "Settings", "Results")  # first sections if many methods test claims


def write_report(paths: list[Path], out: Path, limited: bool = False, command: str = "") -> ReportFiles:
    """Write the report on all runs at or below `paths` to report.html, report.md and report.csv in the folder `out`.

    The same runs give the same bytes. `limited`: include the rows of `clipx eval limit=N`. `command`: command line
    shown below each figure.

    Raises UserError: a path holds no run, or a file of a run is corrupt.
    """
    runs = reader.find(paths, limited=limited)
    published = nearest_models(runs)
    document = build_report(runs, collect_evidence(runs, paths), published)
    shown, _ = _without_copies([run for run in runs if not run.failed_to_start])
    return save(document, results_table(shown, out, published), out, "report", command)


def build_report(runs: list[Run], evidence: Evidence, published: Nearest) -> Document:
    """Return the report on `runs` (at least one): overview first, provenance last."""
    failed = [str(run.path) for run in runs if run.failed_to_start]
    runs, copies = _without_copies([run for run in runs if not run.failed_to_start] or runs)
    groups = group_runs(runs)
    metrics = summarise_metrics(groups)
    shown = Contents(runs, groups, metrics, headline_metrics(metrics), evidence, outcomes(CLAIMS, evidence), published)
    first = OF_A_STUDY if shown.tested and len(groups) > MAX_NAMES else ()
    sections = [Section(name, SECTIONS[name](shown)) for name in dict.fromkeys([*first, *SECTIONS])]
    left_out = {
        "they have no training step yet": [] if runs[0].failed_to_start else failed,
        "another run of the same folder has their seed": copies,
    }
    lead = [
        _summary(shown),
        claims_summary(shown.outcomes),
        *(f"Left out, because {reason}: {first_names(paths)}." for reason, paths in left_out.items() if paths),
        limited_note(runs) if shown.headline else "",  # else `_summary` has it
        other_data_note(runs),
    ]
    return Document(title(groups), " ".join(filter(None, lead)), [one for one in sections if one.blocks], FOOTER)


def _without_copies(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs without copies such as s0_old, and the paths of the copies, which would count as seeds."""
    own_folder_last = sorted(runs, key=lambda run: run.path.name == f"s{run.seed}")
    by_seed = {(run.path.resolve().parent, run.name, run.seed): run.path for run in own_folder_last}
    kept = {*by_seed.values()}
    return [run for run in runs if run.path in kept], [str(run.path) for run in runs if run.path not in kept]


def title(groups: list[RunGroup]) -> str:
    """Return the names of the methods, or else of the recipes, if there are at most MAX_NAMES; otherwise counts."""
    recipes = list(dict.fromkeys(group.runs[0].config.recipe or group.label for group in groups))
    if len(groups) <= MAX_NAMES:
        names = ", ".join(group.label for group in groups)
        return f"{recipes[0]}: {names}" if len(recipes) == 1 < len(groups) else names
    if len(recipes) <= MAX_NAMES:
        return ", ".join(recipes)
    return f"{sum(len(group.runs) for group in groups)} runs: {len(groups)} arms of {len(recipes)} recipes"


def _summary(shown: Contents) -> str:
    runs, methods = shown.runs, len(shown.groups)
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}" + (f" of {methods} methods" if methods > 1 else "")
    if not shown.headline:
        state = "diverged" if all(run.diverged for run in runs) else "not evaluated yet"
        return limited_note(runs) or f"{count}, {state}."
    counted = [metric for metric in shown.headline if TRAINING_PAIRS not in metric.row.hashes]
    tones = [tone(metric) for metric in counted if metric.row.chance is not None]
    if not tones:  # geometry has no chance level
        return f"{count}."
    worse = f", worse: {tones.count('bad')}" if "bad" in tones else ""
    better = f"better than chance: {tones.count('good')} of {len(tones)}"
    return f"{count}. Headline metrics whose whole 95% interval is {better}{worse}."


def _detailed(groups: list[RunGroup], blocks: list[Block]) -> list[Block]:
    """Add a note to the blocks of the first MAX_DETAILED methods if there are more."""
    if not blocks or len(groups) <= MAX_DETAILED:
        return blocks
    note = f"Shown: the first {MAX_DETAILED} of {len(groups)} methods. For others, give clipx report their folders."
    return [Text(note, "muted"), *blocks]


def results_table(runs: list[Run], out: Path, published: Nearest) -> list[list[object]]:
    """Return a header and all result rows: run, folder relative to `out`, Result fields, published values, hashes."""
    hashes = list(dict.fromkeys(key for run in runs for row in run.results for key in row.hashes))
    names = [field.name for field in fields(Result) if field.name != "hashes"]
    columns = CSV if published else ()
    table: list[list[object]] = [["run", "folder", *names, *columns, *(f"hash_{key}" for key in hashes)]]
    for run in runs:
        for row in run.results:
            values = [getattr(row, name) for name in names] + published_values(run, row, published)
            table.append(
                [run.name, os.path.relpath(run.path, out), *values, *(row.hashes.get(key, "") for key in hashes)]
            )
    return table


def save(document: Document, table: list[list[object]], out: Path, name: str, command: str = "") -> ReportFiles:
    """Write NAME.html, NAME.md with the files that it links to, and `table` as NAME.csv."""
    folder = out / f"{name}_files"
    markdown = Markdown(document, folder.name)
    if folder.is_symlink():
        raise UserError(f"{folder} is a link, through which figures would be written elsewhere; remove it")
    for file, content in markdown.files.items():
        write_bytes(folder / file, content)  # replaces a link instead of following it
    linked = [folder / file for file in markdown.files]
    report = ReportFiles(out / f"{name}.html", out / f"{name}.md", out / f"{name}.csv", linked)
    write_text(report.html, render_html(replace(document, command=command)))
    write_text(report.markdown, markdown.text)
    write_text(report.csv, csv_text(table))
    return report
