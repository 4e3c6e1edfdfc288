"""Sections "Results" and "All results": metrics beside chance and the nearest published model; every result row."""

import math
from pathlib import Path

from evaluation.published import PublishedModel, counterpart, nearest, published_value, source
from evaluation.report.blocks import Block, Cell, Details, IntervalBar, Table, Text, Tone
from evaluation.runs.description import MISSING, digits, percent
from evaluation.runs.groups import MetricSummary, RunGroup, Standing
from evaluation.runs.reader import Run
from evaluation.types import HEADLINE, Result

SIGNS: dict[Standing, str] = {
    "above chance": "▲ above chance",
    "not different": "● not different",
    "below chance": "▼ below chance",
    "no chance level": MISSING,
}
MAX_METHODS = 4  # with more methods, the section starts with a table of one row per method
NEAREST = (
    "The nearest published model is chosen by training data first, then by image tower, then by number of samples seen."
)
PUBLISHED = ("Nearest published",)  # column of the page
CSV = ("published_model", "published", "published_difference", "not_compared")
Key = tuple[str, str, str, str]  # task, data set, split, metric
Nearest = dict[Path, PublishedModel]  # folder of a run -> nearest published model; {} if no result has a counterpart


def results(headline: list[MetricSummary], groups: list[RunGroup], published: Nearest) -> list[Block]:
    """Return a table with a row per metric and method.

    With more than MAX_METHODS methods, it is folded below a table with a row per method.
    """
    diverged = _diverged(groups)
    if not headline:
        others = [run.path for group in groups for run in group.runs if not run.diverged]
        return [*diverged, *([Text(f"No results yet. To get them: clipx eval {others[0]}")] if others else [])]
    table: Block = _by_metric(headline, len(groups) > 1, published)
    tables = [table]
    if len(groups) > MAX_METHODS:
        tables = [_by_method(headline, groups, published), Details("Comparison with chance, interval methods", [table])]
    return [*diverged, *tables, *([Text(f"Published: {source()}. {NEAREST}", "muted")] if published else [])]


def _diverged(groups: list[RunGroup]) -> list[Block]:
    """Return a sentence that names the diverged seeds; [] without any."""
    lost = {group.label: [str(run.seed) for run in group.runs if run.diverged] for group in groups}
    named = [f"{label} (seed{'s' if len(of) > 1 else ''} {', '.join(of)})" for label, of in lost.items() if of]
    return [Text(f"Diverged: {', '.join(named)}.")] if named else []


def headline_metrics(metrics: list[MetricSummary]) -> list[MetricSummary]:
    """Return the main metrics of each task and data set; the first metric if there is no result of a main metric."""
    named: dict[tuple[str, ...], list[str]] = {}
    for row in (metric.row for metric in metrics):
        named.setdefault(row.key[:3], []).append(row.metric)
    chosen = {key: {*names} & HEADLINE.get(key[0], {}).keys() or {names[0]} for key, names in named.items()}
    return [metric for metric in metrics if metric.row.metric in chosen[metric.row.key[:3]]]


def tone(metric: MetricSummary) -> Tone:
    """Return "good" if the whole interval is on the better side of chance, "bad" if on the worse side."""
    if metric.standing == "no chance level":
        return "muted"
    if metric.standing == "not different":
        return "neutral"
    return "good" if (metric.standing == "above chance") == metric.row.higher_is_better else "bad"


def all_results(
    groups: list[RunGroup], metrics: list[MetricSummary], published: Nearest, only_means: bool
) -> list[Block]:
    """Return every result row, folded; with `only_means`, a row for all seeds of a metric."""
    if only_means:
        title, columns = "Every metric, mean over the seeds; report.csv has all seeds and hashes", ["Method", "Seeds"]
        of_metrics = [(m.group.runs[0], m.row, [Cell(m.group.label), Cell(str(m.seeds), m.seeds)]) for m in metrics]
    else:
        title, columns = "Every metric of every seed", ["Method", "Seed", "Model"]
        of_metrics = [
            (run, row, [Cell(group.label), Cell(str(row.seed), row.seed), Cell(row.model)])
            for group in groups
            for run in group.runs
            for row in run.results
        ]
    rows = [
        [
            *cells,
            *(Cell(text) for text in (*row.key, "%" if row.is_share else "")),
            *(_value(row, value) for value in (row.value, row.low, row.high, row.chance)),
            Cell(f"{row.n:,}", row.n),
            *_published(run, row, published),
        ]
        for run, row, cells in of_metrics
    ]
    columns += ["Task", "Data set", "Split", "Metric", "Unit", "Value", "Low", "High", "Chance", "Examples"]
    return [Details(title, [Table([*columns, *(PUBLISHED if published else ())], rows)])] if rows else []


def nearest_models(runs: list[Run]) -> Nearest:
    """Return the published model nearest to each run; {} if open_clip publishes no counterpart of any result."""
    if not any(counterpart(row) for run in runs for row in run.results):
        return {}
    return {run.path: nearest(run) for run in runs}


def published_values(run: Run, row: Result, published: Nearest) -> list[object]:
    """Return the values of the columns CSV, all "" if the row has no published counterpart; [] without models."""
    if not published:
        return []
    one = published_value(row, published[run.path])
    if one is None:
        return [""] * len(CSV)
    return [one.model.name, one.published, "" if one.obstacle else one.difference, one.obstacle]


def _published(run: Run, row: Result, published: Nearest) -> list[Cell]:
    """Return the cell of the published column; [] without models."""
    if not published:
        return []
    one = published_value(row, published[run.path])
    if one is None:
        return [Cell("")]
    if one.obstacle:
        return [Cell("not compared", tone="muted", note=one.obstacle)]
    note = f"{one.model.name}, ours {percent(one.difference, '+')}"
    return [Cell(percent(one.published), one.published, note=note)]


def _by_metric(headline: list[MetricSummary], several: bool, published: Nearest) -> Table:
    columns = ["Metric", *(["Method"] if several else []), "Value", "95% interval", *(PUBLISHED if published else ())]
    rows = [
        [
            Cell(_name(metric.row), note=_data(metric.row)),
            *([Cell(metric.group.label)] if several else []),
            _value(metric.row, metric.row.value),
            Cell(_interval(metric.row), metric.row.low, bar=_bar(metric.row)),
            *_published(metric.group.runs[0], metric.row, published),
            Cell(SIGNS[metric.standing], tone=tone(metric)),
            _value(metric.row, metric.row.chance),
            Cell(f"{metric.row.n:,}", metric.row.n),
            Cell(metric.source, tone="muted"),
        ]
        for metric in headline
    ]
    return Table([*columns, "Against chance", "Chance", "Examples", "Interval method"], rows)


def _by_method(headline: list[MetricSummary], groups: list[RunGroup], published: Nearest) -> Table:
    """Return one row per method and published model, one column per metric, with intervals below the values."""
    columns: dict[Key, str] = {}
    lines: dict[tuple[str, str], dict[Key, Cell]] = {(group.label, ""): {} for group in groups}
    for metric in headline:
        row = metric.row
        columns.setdefault(row.key, f"{_name(row)}, {_data(row)}")
        lines[metric.group.label, ""][row.key] = _value(row, row.value, note=_interval(row))
        one = published_value(row, published[metric.group.runs[0].path]) if published else None
        if one and not one.obstacle:
            line = lines.setdefault((one.model.name, "published"), {})
            line[row.key] = Cell(percent(one.published), one.published)
    rows = [
        [Cell(name, note=note), *(cells.get(key, Cell(MISSING)) for key in columns)]
        for (name, note), cells in lines.items()
        if cells
    ]
    return Table(["Method", *columns.values()], rows)


def _name(row: Result) -> str:
    return HEADLINE.get(row.task, {}).get(row.metric, f"{row.task} {row.metric}") + (" (%)" if row.is_share else "")


def _data(row: Result) -> str:
    """Return the data set, with its split if that is neither test nor part of the data set's name."""
    usual = row.split in ("", "test") or row.dataset.endswith(row.split)
    return row.dataset if usual else f"{row.dataset} ({row.split})"


def _bar(row: Result) -> IntervalBar | None:
    is_fraction = 0 <= row.value <= 1 and 0 <= (row.chance or 0) <= 1
    return IntervalBar(row.low, row.value, row.high, row.chance) if is_fraction else None


def _interval(row: Result) -> str:
    """Return the interval; a row without one, such as margins of two batches, has equal ends."""
    has_interval = not math.isnan(row.value) and row.low != row.high
    return f"[{_text(row, row.low)}, {_text(row, row.high)}]" if has_interval else MISSING


def _value(row: Result, value: float | None, note: str = "") -> Cell:
    """Return a number in the unit of the row's metric."""
    return Cell(MISSING, note=note) if value is None or math.isnan(value) else Cell(_text(row, value), value, note=note)


def _text(row: Result, value: float) -> str:
    return percent(value) if row.is_share else digits(value)
