"""The report's contents: overview first, then training, what each task drew, every row, and provenance."""

import math
from statistics import median
from typing import Any

from evaluation.claims.evidence import Evidence, outcomes
from evaluation.claims.table import CLAIMS
from evaluation.report.blocks import Block, Cell, Details, Document, Facts, Figures, Section, Table, Text
from evaluation.report.figures import plots
from evaluation.report.sections import artifacts, training_curves
from evaluation.report.sections import claims as report_claims
from evaluation.report.sections import results as report_results
from evaluation.report.sections.point_weights import weights
from evaluation.report.sections.popularity import popularities
from evaluation.runs.description import MISSING, describe, duration, flat, last, number, training_seconds
from evaluation.runs.groups import MetricSummary, RunGroup, group_runs, summarise_metrics
from evaluation.runs.reader import Run

FEW = 3  # methods that a title can name
MOST_ROWS = 12  # of a table that is not folded
FOOT = (
    "Numbers are fractions. ▲ and ▼: the whole 95% interval lies above or below chance. With several seeds, both "
    "intervals must lie there: Student's t over the seeds, and the mean of the seeds' bootstrap intervals. Click a "
    "column's head to sort."
)


def build_report(runs: list[Run], evidence: Evidence) -> Document:
    """The report on `runs` (at least one), and on what they say about the papers."""
    groups = group_runs(runs)
    found = summarise_metrics(groups)
    main = report_results.headline(found)
    judged = outcomes(CLAIMS, evidence)
    results = Section("Results", report_results.blocks(main, groups) if main else [_how_to_evaluate(groups)])
    claims, *papers = report_claims.sections(evidence, judged, groups)
    what = Section("What was run", _what_was_run(groups))
    of_papers = len(groups) > FEW and any(outcome.verdict != "not run" for outcome in judged)
    sections = [
        *((claims, what, results, *papers) if of_papers else (results, claims, *papers, what)),
        Section("Training", _training(groups)),
        Section("Behind the numbers", _drawn(groups, found)),
        Section("Learned popularity", popularities(groups)),
        Section("Weights of points", weights(groups)),
        Section("Retrieval examples", artifacts.retrievals(groups)),
        Section("All results", [Details("Every metric of every seed", [_all_rows(runs)])] if main else []),
        Section("Provenance", _provenance(runs, groups)),
    ]
    lead = _lead(main, runs, len(groups)) + report_claims.lead(judged)
    return Document(_title(groups), lead, [section for section in sections if section.blocks], FOOT)


def _lead(main: list[MetricSummary], runs: list[Run], methods: int) -> str:
    seeds = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    if methods > 1:
        seeds += f" of {methods} methods"
    if not main:
        return f"{seeds}, not evaluated yet."
    main = [measure for measure in main if measure.chance is not None]
    better = sum(report_results.tone(measure) == "good" for measure in main)
    worse = sum(report_results.tone(measure) == "bad" for measure in main)
    sentence = f"{seeds}. For {better} of {len(main)} headline measures the whole 95% interval is better than chance"
    return sentence + (f", for {worse} it is worse." if worse else ".")


def _title(groups: list[RunGroup]) -> str:
    if len(groups) <= FEW:
        return ", ".join(one.label for one in groups)
    recipes = list(dict.fromkeys(str(one.runs[0].config.get("recipe") or one.label) for one in groups))
    if len(recipes) <= FEW:
        return ", ".join(recipes)
    return f"{sum(len(one.runs) for one in groups)} runs: {len(groups)} arms of {len(recipes)} recipes"


def _how_to_evaluate(groups: list[RunGroup]) -> Text:
    return Text(f"No results yet. To get them: clipx eval checkpoint={groups[0].runs[0].path}")


def _what_was_run(groups: list[RunGroup]) -> list[Block]:
    """What all groups have in common, then what tells them apart."""
    described = []
    for one in groups:
        seeds = ", ".join(str(run.seed) for run in one.runs)
        described.append({"Run": one.label, "Seeds": seeds, **describe(one.runs[0])})
        times = [seconds for run in one.runs if (seconds := training_seconds(run)) is not None]
        if len(times) > 1:
            described[-1]["Training time"] = f"{duration(sum(times) / len(times))} a seed"
    differing = [key for key in described[0] if len({one[key] for one in described}) > 1]
    shared = [(key, value) for key, value in described[0].items() if key not in differing]
    if not differing:
        return [Facts(shared)]
    table = Table(differing, [[Cell(one[key]) for key in differing] for one in described])
    return [Text("Different:", "muted"), table, Text("The same in all runs:", "muted"), Facts(shared)]


def _training(groups: list[RunGroup]) -> list[Block]:
    logged = [(one, run) for one in groups for run in one.runs if run.log]
    if not logged:
        return []
    drawn = []
    for name, key, title in [("loss", "loss", "Loss"), ("temperature", "tau", "Temperature τ = 1/scale")]:
        lines = [_line(one.label, run, key) for one, run in logged]
        if any(line.x for line in lines):
            drawn.append(plots.curves(name, f"{title}, one line a seed", lines, "step", key.replace("tau", "τ")))
    rows = [
        [
            Cell(one.label),
            Cell(str(run.seed), run.seed),
            *(_logged(last(run, key), ".4g") for key in ("loss", "tau", "grad_norm")),
            _logged(median(speeds) if (speeds := _values(run, "images_per_s")) else None, ",.0f"),
            Cell(duration(training_seconds(run)), training_seconds(run)),
        ]
        for one, run in logged
    ]
    columns = ["Run", "Seed", "Last loss", "Last τ", "Gradient norm", "Images/s (median)", "Time"]
    table = Table(columns, rows)
    rest = table if len(rows) <= MOST_ROWS else Details(f"Each of the {len(rows)} runs", [table])
    return [Figures(drawn), *training_curves.blocks(groups), rest]


def _drawn(groups: list[RunGroup], found: list[MetricSummary]) -> list[Block]:
    confusions, tables = artifacts.confusions(groups)
    figures = [*confusions, *artifacts.pairs(groups, found), *artifacts.probes(groups)]
    return [Figures(figures), *tables] if figures else []


def _line(label: str, run: Run, key: str) -> plots.Line:
    points = [(x, y) for line in run.log for x, y in [(number(line, "step"), number(line, key))]]
    finite = [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]
    return plots.Line(label, [x for x, _ in finite], [y for _, y in finite])


def _values(run: Run, key: str) -> list[float]:
    return [value for line in run.log if (value := number(line, key)) is not None]


def _logged(value: float | None, form: str) -> Cell:
    return Cell(MISSING) if value is None else Cell(format(value, form), value)


def _all_rows(runs: list[Run]) -> Table:
    columns = [
        "Run",
        "Seed",
        "Task",
        "Data set",
        "Split",
        "Metric",
        "Value",
        "Low",
        "High",
        "Chance",
        "Examples",
    ]
    rows = [
        [
            *(Cell(text) for text in (run.name,)),
            Cell(str(row.seed), row.seed),
            *(Cell(text) for text in (row.task, row.dataset, row.split, row.metric)),
            *(report_results.number(value) for value in (row.value, row.low, row.high, row.chance)),
            Cell(f"{row.n:,}", row.n),
            Cell(row.model),
        ]
        for run in runs
        for row in run.results
    ]
    return Table([*columns, "Model"], rows)


def _provenance(runs: list[Run], groups: list[RunGroup]) -> list[Block]:
    inner: list[Block] = []
    environments: list[tuple[dict[str, Any], list[str]]] = []
    for one in groups:
        for run in one.runs:
            known = [names for environment, names in environments if environment == run.environment]
            if known:
                known[0].append(f"{one.label} seed {run.seed}")
            elif run.environment:
                environments.append((run.environment, [f"{one.label} seed {run.seed}"]))
    for environment, names in environments:
        inner += [Text(f"Environment of {', '.join(names)}"), Facts(flat(environment))]
    keys = list(dict.fromkeys(key for run in runs for row in run.results for key in row.hashes))
    rows = [
        [
            Cell(run.name),
            Cell(str(row.seed), row.seed),
            *(Cell(text) for text in (row.dataset, row.metric, row.model)),
            *(Cell(row.hashes.get(key, MISSING)) for key in keys),
        ]
        for run in runs
        for row in run.results
    ]
    if rows:
        inner += [
            Text("Hashes behind each result"),
            Table(["Run", "Seed", "Data set", "Metric", "Model", *keys], rows),
        ]
    inner.append(Facts([(f"{run.name} seed {run.seed}", str(run.path)) for run in runs]))
    return [Details("Versions, git commit, hashes, folders", inner)]
