"""Sections "Results" and "All results": headline metrics with intervals and chance, and every result row."""

import math

from evaluation.report.blocks import Block, Cell, Details, Figures, IntervalBar, Table, Text, Tone
from evaluation.report.sections.published import Published, robustness
from evaluation.runs.description import MISSING, digits
from evaluation.runs.groups import MetricSummary, RunGroup, Standing
from evaluation.runs.reader import Run
from evaluation.tasks.rows import HEADLINE
from evaluation.types import Result

SIGNS: dict[Standing, str] = {
    "above chance": "▲ above chance",
    "not different": "● not different",
    "below chance": "▼ below chance",
    "no chance level": MISSING,
}
MAX_METHODS = 4  # with more methods, the section starts with a table of one row per method
Key = tuple[str, str, str, str]  # task, data set, split, metric


def results(headline: list[MetricSummary], groups: list[RunGroup], published: Published) -> list[Block]:
    """Return a table with a row per metric and method.

    With more than MAX_METHODS methods, it is folded below a table with a row per method.
    """
    diverged = _diverged(groups)
    if not headline:
        others = [run.path for group in groups for run in group.runs if not run.diverged]
        return [*diverged, *([Text(f"No results yet. To get them: clipx eval {others[0]}")] if others else [])]
    table = _by_metric(headline, len(groups) > 1, published)
    notes: list[Block] = [Text(published.note, "muted")] if published.note else []
    if figures := robustness(headline):
        notes.append(Figures(figures))
    if len(groups) <= MAX_METHODS:
        return [*diverged, table, *notes]
    by_method = _by_method(headline, groups, published)
    return [*diverged, by_method, Details("Comparison with chance, interval methods", [table]), *notes]


def _diverged(groups: list[RunGroup]) -> list[Block]:
    """Return a sentence that names the diverged seeds; [] without any."""
    lost = {group.label: [str(run.seed) for run in group.runs if run.diverged] for group in groups}
    named = [f"{label} (seed{'s' if len(of) > 1 else ''} {', '.join(of)})" for label, of in lost.items() if of]
    return [Text(f"Diverged: {', '.join(named)}.")] if named else []


def headline_metrics(metrics: list[MetricSummary]) -> list[MetricSummary]:
    """Return the main metrics of each task and data set; the first metric if the task defines no main metric."""
    chosen: dict[tuple[str, str, str], set[str]] = {}
    for row in (metric.row for metric in metrics):
        names = chosen.setdefault((row.task, row.dataset, row.split), set())
        if row.metric in HEADLINE[row.task] if row.task in HEADLINE else not names:
            names.add(row.metric)
    return [m for m in metrics if m.row.metric in chosen[m.row.task, m.row.dataset, m.row.split]]


def tone(metric: MetricSummary) -> Tone:
    """Return "good" if the whole interval is on the better side of chance, "bad" if on the worse side."""
    if metric.standing == "no chance level":
        return "muted"
    if metric.standing == "not different":
        return "neutral"
    return "good" if (metric.standing == "above chance") == metric.row.higher_is_better else "bad"


def all_results(runs: list[Run], published: Published) -> list[Block]:
    """Return every result row, folded."""
    rows = [
        [
            Cell(run.name),
            Cell(str(row.seed), row.seed),
            *(Cell(text) for text in (row.task, row.dataset, row.split, row.metric)),
            *(_value(value) for value in (row.value, row.low, row.high, row.chance)),
            Cell(f"{row.n:,}", row.n),
            Cell(row.model),
            *published.cells(run, row),
        ]
        for run in runs
        for row in run.results
    ]
    columns = ["Run", "Seed", "Task", "Data set", "Split", "Metric", "Value", "Low", "High", "Chance", "Examples"]
    columns += ["Model", *published.columns]
    return [Details("Every metric of every seed", [Table(columns, rows)])] if rows else []


def _by_metric(headline: list[MetricSummary], several: bool, published: Published) -> Table:
    columns = ["Metric", *(["Method"] if several else []), "Value", *published.columns, "Against chance"]
    rows = [
        [
            Cell(_name(metric.row), note=_data(metric.row)),
            *([Cell(metric.group.label)] if several else []),
            _value(metric.row.value),
            *published.cells(metric.group.runs[0], metric.row),
            Cell(SIGNS[metric.standing], tone=tone(metric)),
            Cell(_interval(metric.row), metric.row.low, bar=_bar(metric.row)),
            _value(metric.row.chance),
            Cell(f"{metric.row.n:,}", metric.row.n),
            Cell(metric.source, tone="muted"),
        ]
        for metric in headline
    ]
    return Table([*columns, "95% interval", "Chance", "Examples", "Interval method"], rows)


def _by_method(headline: list[MetricSummary], groups: list[RunGroup], published: Published) -> Table:
    """Return one row per method and published model, one column per metric, with intervals below the values."""
    columns: dict[Key, str] = {}
    models: dict[str, dict[Key, Cell]] = {}
    values: dict[tuple[str, Key], Cell] = {}
    for metric in headline:
        row = metric.row
        key = (row.task, row.dataset, row.split, row.metric)
        columns.setdefault(key, f"{_name(row)}, {_data(row)}")
        values[metric.group.label, key] = _value(row.value, note=_interval(row))
        for one in published.comparisons(metric.group.runs[0], row):
            if not one.obstacle:
                models.setdefault(one.model.name, {})[key] = Cell(f"{one.published:.4f}", one.published)
    rows = [
        [Cell(group.label), *(values.get((group.label, key), Cell(MISSING)) for key in columns)]
        for group in groups
        if any((group.label, key) in values for key in columns)
    ]
    rows += [
        [Cell(name, note="published"), *(of_model.get(key, Cell(MISSING)) for key in columns)]
        for name, of_model in models.items()
    ]
    return Table(["Method", *columns.values()], rows)


def _name(row: Result) -> str:
    return HEADLINE.get(row.task, {}).get(row.metric, f"{row.task} {row.metric}")


def _data(row: Result) -> str:
    """Return the data set, with its split if that is neither test nor part of the data set's name."""
    usual = row.split in ("", "test") or row.dataset.endswith(row.split)
    return row.dataset if usual else f"{row.dataset} ({row.split})"


def _bar(row: Result) -> IntervalBar | None:
    is_fraction = 0 <= row.value <= 1 and 0 <= (row.chance or 0) <= 1
    return IntervalBar(row.low, row.value, row.high, row.chance) if is_fraction else None


def _interval(row: Result) -> str:
    return f"[{digits(row.low)}, {digits(row.high)}]"


def _value(value: float | None, note: str = "") -> Cell:
    return Cell(MISSING, note=note) if value is None or math.isnan(value) else Cell(digits(value), value, note=note)
