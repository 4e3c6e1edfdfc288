"""The report's first numbers: the main metrics of each method, with intervals, beside chance."""

import math

from evaluation.report.blocks import Block, Cell, Details, Span, Table, Tone
from evaluation.runs.description import MISSING
from evaluation.runs.groups import MetricSummary, RunGroup
from evaluation.tasks.rows import HEADLINE

SIGNS = {
    "above chance": "▲ above chance",
    "not different": "● not different",
    "below chance": "▼ below chance",
}
MOST_METHODS = 4  # a row each in the table of measures; with more of them they are rows, and measures are columns


def blocks(main: list[MetricSummary], groups: list[RunGroup]) -> list[Block]:
    """A row a measure and method; many methods have a row each, and the rest is folded."""
    table = _results(main, groups)
    if len(groups) <= MOST_METHODS:
        return [table]
    return [_by_method(main, groups), Details("Against chance, and where the intervals come from", [table])]


def headline(found: list[MetricSummary]) -> list[MetricSummary]:
    """The main metrics of each task and data set."""
    main: dict[tuple[str, str, str], set[str]] = {}
    for measure in found:
        chosen = main.setdefault((measure.task, measure.dataset, measure.split), set())
        is_main = measure.metric in HEADLINE[measure.task] if measure.task in HEADLINE else not chosen
        if is_main:
            chosen.add(measure.metric)
    return [one for one in found if one.metric in main[one.task, one.dataset, one.split]]


def _results(main: list[MetricSummary], groups: list[RunGroup]) -> Table:
    several = len(groups) > 1
    columns = ["Measure", *(["Run"] if several else []), "Value", "Against chance", "95% interval", "Chance"]
    rows = [
        [
            Cell(_name(one), note=_data(one)),
            *([Cell(one.group.label)] if several else []),
            number(one.value),
            Cell(SIGNS.get(one.standing, MISSING), tone=tone(one)),
            _interval(one),
            number(one.chance),
            Cell(f"{one.n:,}", one.n),
            Cell(one.source, tone="muted"),
        ]
        for one in main
    ]
    return Table([*columns, "Examples", "Interval from"], rows)


def _data(measure: MetricSummary) -> str:
    """The data set, and its split where that is not the usual one or part of the name."""
    usual = measure.split in ("", "test") or measure.dataset.endswith(measure.split)
    return measure.dataset if usual else f"{measure.dataset} ({measure.split})"


def _interval(measure: MetricSummary) -> Cell:
    low, high, chance = measure.low, measure.high, measure.chance
    is_fraction = 0 <= measure.value <= 1 and (chance is None or 0 <= chance <= 1)
    span = Span(low, measure.value, high, chance) if is_fraction else None
    return Cell(f"[{_digits(low)}, {_digits(high)}]", low, span=span)


def tone(measure: MetricSummary) -> Tone:
    """Good where the whole interval is on the better side of chance."""
    if measure.standing not in ("above chance", "below chance"):
        return "muted"
    return "good" if (measure.standing == "above chance") == measure.higher_is_better else "bad"


def number(value: float | None) -> Cell:
    """A value for a table; a dash where there is none."""
    return Cell(MISSING) if value is None or math.isnan(value) else Cell(_digits(value), value)


def _digits(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"


def _by_method(main: list[MetricSummary], groups: list[RunGroup]) -> Table:
    """A column a measure; below a value its 95% interval."""
    keys = list(dict.fromkeys((one.task, one.dataset, one.split, one.metric) for one in main))
    found = {(one.group.label, one.task, one.dataset, one.split, one.metric): one for one in main}
    first = {key: next(one for one in main if (one.task, one.dataset, one.split, one.metric) == key) for key in keys}
    rows = [
        [Cell(group.label), *(_value(found.get((group.label, *key))) for key in keys)]
        for group in groups
        if any((group.label, *key) in found for key in keys)
    ]
    return Table(["Method", *(f"{_name(first[key])}, {_data(first[key])}" for key in keys)], rows)


def _value(one: MetricSummary | None) -> Cell:
    if one is None:
        return Cell(MISSING)
    cell = number(one.value)
    return Cell(cell.text, cell.sort, note=f"[{_digits(one.low)}, {_digits(one.high)}]")


def _name(one: MetricSummary) -> str:
    return HEADLINE.get(one.task, {}).get(one.metric, f"{one.task} {one.metric}")
