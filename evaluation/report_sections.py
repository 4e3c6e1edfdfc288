"""The report's contents: overview first, then training, what each task drew, every row, and provenance."""

import math
from statistics import median
from typing import Any

from evaluation import plots, report_artifacts, report_claims
from evaluation.claims.evidence import Evidence, outcomes
from evaluation.claims.table import CLAIMS
from evaluation.document import (
    Block,
    Cell,
    Details,
    Document,
    Facts,
    Figures,
    Section,
    Span,
    Table,
    Text,
    Tone,
)
from evaluation.report_popularity import popularities
from evaluation.report_weights import weights
from evaluation.run_facts import MISSING, duration, facts, flat, number, training_seconds
from evaluation.runs import Run
from evaluation.summary import Group, Measure, group, measures

HEADLINE = {  # task -> its main metrics and their names; of another task, the first metric it wrote
    "zeroshot": {"top1": "zero-shot accuracy"},
    "linear_probe": {"top1": "linear probe accuracy"},
    "retrieval": {
        "image_to_text_recall@1": "image → text R@1",
        "text_to_image_recall@1": "text → image R@1",
    },
    "pairs": {"pair_accuracy": "pair accuracy"},
    "geometry": {"gap": "modality gap", "uniformity": "uniformity", "margin_mean": "mean margin"},
    "popularity": {"zeta_text_spearman": "rank correlation of ζ (texts) with popularity"},
}
SIGNS = {
    "above chance": "▲ above chance",
    "not different": "● not different",
    "below chance": "▼ below chance",
}
FOOT = (
    "Numbers are fractions. ▲ and ▼: the whole 95% interval lies above or below chance; with several seeds, both "
    "Student's t over the seeds and the mean of their own bootstrap intervals. Click a column's head to sort."
)


def build(runs: list[Run], evidence: Evidence) -> Document:
    """The report on `runs` (at least one), and on what they say about the papers."""
    groups = group(runs)
    found = measures(groups)
    main = headline(found)
    judged = outcomes(CLAIMS, evidence)
    sections = [
        Section("Results", [_results(main, groups)] if main else [_how_to_evaluate(groups)]),
        *report_claims.sections(evidence, judged, groups),
        Section("What was run", _what_was_run(groups)),
        Section("Training", _training(groups)),
        Section("Behind the numbers", _drawn(groups, found)),
        Section("Learned popularity", popularities(groups)),
        Section("Weights of points", weights(groups)),
        Section("Retrieval examples", report_artifacts.retrievals(groups)),
        Section("All results", [Details("Every metric of every seed", [_all_rows(runs)])] if main else []),
        Section("Provenance", _provenance(runs, groups)),
    ]
    title = ", ".join(one.label for one in groups) if len(groups) <= 3 else f"{len(groups)} runs"
    lead = _lead(main, runs) + report_claims.lead(judged)
    return Document(title, lead, [section for section in sections if section.blocks], FOOT)


def headline(found: list[Measure]) -> list[Measure]:
    """The main metrics of each task and data set."""
    main: dict[tuple[str, str, str], set[str]] = {}
    for measure in found:
        chosen = main.setdefault((measure.task, measure.dataset, measure.split), set())
        is_main = measure.metric in HEADLINE[measure.task] if measure.task in HEADLINE else not chosen
        if is_main:
            chosen.add(measure.metric)
    return [one for one in found if one.metric in main[one.task, one.dataset, one.split]]


def _lead(main: list[Measure], runs: list[Run]) -> str:
    seeds = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    if not main:
        return f"{seeds}, not evaluated yet."
    main = [measure for measure in main if measure.chance is not None]
    better = sum(_tone(measure) == "good" for measure in main)
    worse = sum(_tone(measure) == "bad" for measure in main)
    sentence = f"{seeds}; {better} of {len(main)} headline measures are better than chance beyond the 95% interval"
    return sentence + (f", {worse} worse." if worse else ".")


def _how_to_evaluate(groups: list[Group]) -> Text:
    return Text(f"No results yet. To get them: clipx eval checkpoint={groups[0].runs[0].path}")


def _results(main: list[Measure], groups: list[Group]) -> Table:
    several = len(groups) > 1
    columns = ["Measure", *(["Run"] if several else []), "Value", "Against chance", "95% interval", "Chance"]
    rows = [
        [
            Cell(HEADLINE.get(one.task, {}).get(one.metric, f"{one.task} {one.metric}"), note=_data(one)),
            *([Cell(one.group.label)] if several else []),
            _number(one.value),
            Cell(SIGNS.get(one.standing, MISSING), tone=_tone(one)),
            _interval(one),
            _number(one.chance),
            Cell(f"{one.n:,}", one.n),
            Cell(one.source, tone="muted"),
        ]
        for one in main
    ]
    return Table([*columns, "Examples", "Interval from"], rows)


def _data(measure: Measure) -> str:
    """The data set, and its split where that is not the usual one or part of the name."""
    usual = measure.split in ("", "test") or measure.dataset.endswith(measure.split)
    return measure.dataset if usual else f"{measure.dataset} ({measure.split})"


def _interval(measure: Measure) -> Cell:
    low, high, chance = measure.low, measure.high, measure.chance
    is_fraction = 0 <= measure.value <= 1 and (chance is None or 0 <= chance <= 1)
    span = Span(low, measure.value, high, chance) if is_fraction else None
    return Cell(f"{_digits(low)} – {_digits(high)}", low, span=span)


def _tone(measure: Measure) -> Tone:
    if measure.standing not in ("above chance", "below chance"):
        return "muted"
    return "good" if (measure.standing == "above chance") == measure.higher_is_better else "bad"


def _number(value: float | None) -> Cell:
    return Cell(MISSING) if value is None or math.isnan(value) else Cell(_digits(value), value)


def _digits(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"


def _what_was_run(groups: list[Group]) -> list[Block]:
    """What all groups have in common, then what tells them apart."""
    described = []
    for one in groups:
        seeds = ", ".join(str(run.seed) for run in one.runs)
        described.append({"Run": one.label, "Seeds": seeds, **facts(one.runs[0])})
        times = [seconds for run in one.runs if (seconds := training_seconds(run)) is not None]
        if len(times) > 1:
            described[-1]["Training time"] = f"{duration(sum(times) / len(times))} a seed"
    differing = [key for key in described[0] if len({one[key] for one in described}) > 1]
    shared = [(key, value) for key, value in described[0].items() if key not in differing]
    if not differing:
        return [Facts(shared)]
    table = Table(differing, [[Cell(one[key]) for key in differing] for one in described])
    return [Text("Different:", "muted"), table, Text("The same in all runs:", "muted"), Facts(shared)]


def _training(groups: list[Group]) -> list[Block]:
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
            *(_logged(number(run.log[-1], key), ".4g") for key in ("loss", "tau", "grad_norm")),
            _logged(median(speeds) if (speeds := _values(run, "images_per_s")) else None, ",.0f"),
            Cell(duration(training_seconds(run)), training_seconds(run)),
        ]
        for one, run in logged
    ]
    columns = ["Run", "Seed", "Last loss", "Last τ", "Gradient norm", "Images/s (median)", "Time"]
    return [Figures(drawn), Table(columns, rows)]


def _drawn(groups: list[Group], found: list[Measure]) -> list[Block]:
    confusions, tables = report_artifacts.confusions(groups)
    figures = [*confusions, *report_artifacts.pairs(groups, found), *report_artifacts.probes(groups)]
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
            *(_number(value) for value in (row.value, row.low, row.high, row.chance)),
            Cell(f"{row.n:,}", row.n),
            Cell(row.model),
        ]
        for run in runs
        for row in run.results
    ]
    return Table([*columns, "Model"], rows)


def _provenance(runs: list[Run], groups: list[Group]) -> list[Block]:
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
