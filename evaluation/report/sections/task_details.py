"""Sections "Task details" and "Retrieval examples".

Task details: confusion matrices, accuracy by category, validation curves of linear probes.
"""

import re
from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any

from evaluation.report.blocks import (
    Block,
    Cell,
    Details,
    Figure,
    Figures,
    RetrievalExample,
    RetrievalExamples,
    RetrievalItem,
    Table,
    Text,
)
from evaluation.report.figures.plots import MAX_CLASS_LABELS, Bars, Line, bar_chart, confusion_matrix, line_plot
from evaluation.report.figures.svg import slug
from evaluation.runs.description import number
from evaluation.runs.groups import MetricSummary, RunGroup
from evaluation.statistics import t_interval
from evaluation.types import printable_line

MAX_CONFUSED_PAIRS = 10  # rows of the table that accompanies a matrix without class labels
LEGEND = (
    "Best answer first, each with its similarity (cosine, unless the embeddings are not normalised). "
    "Correct answers are ticked."
)

Artifact = dict[str, Any]  # content of a task's artifact file: the data that the report draws
ClassPair = tuple[int, int]  # numbers of the true and the predicted class


def task_details(groups: list[RunGroup], metrics: list[MetricSummary]) -> list[Block]:
    """Return the figures, then tables of the most confused classes."""
    matrices, tables = _confusions(groups)
    figures = [*matrices, *_pair_accuracies(groups, metrics), *_probe_curves(groups)]
    return [*([Figures(figures)] if figures else []), *tables]


def _confusions(groups: list[RunGroup]) -> tuple[list[Figure], list[Block]]:
    """Return one matrix per data set and group, summed over seeds; for many classes instead the most confused pairs."""
    figures: list[Figure] = []
    tables: list[Block] = []
    drawn, listed = (artifacts_by_dataset(groups, kind) for kind in ("confusion", "confused"))
    for dataset, members in chain(drawn.items(), listed.items()):
        for group, artifacts in members:
            names = [str(name) for name in artifacts[0]["classnames"]]
            seeds = [seed for seed in artifacts if seed["classnames"] == artifacts[0]["classnames"]]
            counts = sum(map(_counts, seeds), Counter[ClassPair]())
            title = f"{dataset} · {group.label}" + (f" · sum of {len(seeds)} seeds" if len(seeds) > 1 else "")
            if dataset in drawn:
                name = f"confusion-{len(figures) + 1:02d}-{slug(dataset)}-{slug(group.label)}"
                matrix = [[counts[true, predicted] for predicted in range(len(names))] for true in range(len(names))]
                figures.append(confusion_matrix(name, f"{title}: % of each true class", names, matrix))
            if len(names) > MAX_CLASS_LABELS:
                tables.append(Details(f"{title}: most confused classes", [_most_confused(names, counts)], open=True))
    return figures, tables


def _counts(artifact: Artifact) -> Counter[ClassPair]:
    if "cells" in artifact:
        return Counter({(true, predicted): count for true, predicted, count in artifact["cells"]})
    rows = enumerate(artifact["matrix"])
    return Counter({(true, predicted): count for true, row in rows for predicted, count in enumerate(row)})


def _most_confused(names: list[str], counts: Counter[ClassPair]) -> Table:
    of_class = Counter[int]()
    for (true, _), count in counts.items():
        of_class[true] += count
    errors = [
        (count, count / of_class[true], names[true], names[predicted])
        for (true, predicted), count in counts.items()
        if true != predicted and count > 0
    ]
    errors.sort(key=lambda error: (-error[0], error[2], error[3]))
    rows = [
        [Cell(true), Cell(predicted), Cell(f"{count:,}", count), Cell(f"{share:.1%}", share)]
        for count, share, true, predicted in errors[:MAX_CONFUSED_PAIRS]
    ]
    return Table(["True class", "Predicted class", "Count", "Share of the true class"], rows)


def _pair_accuracies(groups: list[RunGroup], metrics: list[MetricSummary]) -> list[Figure]:
    figures: list[Figure] = []
    for dataset, members in artifacts_by_dataset(groups, "pairs").items():
        categories = list(dict.fromkeys(name for _, seeds in members for seed in seeds for name in seed["categories"]))
        bars = [_bars(group, seeds, categories) for group, seeds in members]
        rows = [m.row for m in metrics if (m.row.task, m.row.dataset) == ("pairs", dataset)]
        chances = {row.chance for row in rows if row.metric.startswith("pair_accuracy")}
        chance = chances.pop() if len(chances) == 1 else None
        name = f"pairs-{len(figures) + 1:02d}-{slug(dataset)}"
        caption = f"{_title(dataset, members)}: pair accuracy by category, with 95% intervals"
        figures.append(bar_chart(name, caption, categories, bars, chance))
    return figures


def _bars(group: RunGroup, seeds: list[Artifact], categories: list[str]) -> Bars:
    """Return bars with intervals: Student's t over the seeds, or the bootstrap interval of a single seed."""
    bars = Bars(group.label, [], [], [])
    for category in categories:
        scores = [seed["categories"][category] for seed in seeds if category in seed["categories"]]
        if len(scores) > 1:
            value, low, high = t_interval([float(score["value"]) for score in scores])
        elif scores:
            value, low, high = (float(scores[0][key]) for key in ("value", "low", "high"))
        else:
            value = low = high = float("nan")
        bars.value.append(value)
        bars.low.append(low)
        bars.high.append(high)
    return bars


def _probe_curves(groups: list[RunGroup]) -> list[Figure]:
    figures: list[Figure] = []
    for dataset, members in artifacts_by_dataset(groups, "linear_probe").items():
        lines = []
        for group, seeds in members:
            for seed in seeds:
                c, accuracy = list(map(float, seed["C"])), list(map(float, seed["validation_accuracy"]))
                lines.append(Line(group.label, c, accuracy, mark=number(seed, "chosen_C")))
        caption = f"{_title(dataset, members)}: linear probe, one line per seed; ring: chosen C"
        name = f"probe-{len(figures) + 1:02d}-{slug(dataset)}"
        x, y = "C (inverse regularisation)", "validation accuracy"
        figures.append(line_plot(name, caption, lines, x, y, log_x=True))
    return figures


def _title(dataset: str, members: list[tuple[RunGroup, list[Artifact]]]) -> str:
    return f"{dataset} · {members[0][0].label}" if len(members) == 1 else dataset


def artifacts_by_dataset(groups: list[RunGroup], kind: str) -> dict[str, list[tuple[RunGroup, list[Artifact]]]]:
    """Return, by data set, the groups that have artifacts of `kind`, each with one artifact per seed."""
    by_dataset: dict[str, dict[str, tuple[RunGroup, list[Artifact]]]] = {}
    for group in groups:
        for run in group.runs:
            for dataset, artifact in run.artifacts_of(kind):
                by_group = by_dataset.setdefault(dataset, {})
                by_group.setdefault(group.label, (group, []))[1].append(artifact)
    return {dataset: list(by_group.values()) for dataset, by_group in by_dataset.items()}


def retrieval_examples(groups: list[RunGroup]) -> list[Block]:
    """Return examples from each group's first seed that has some; all but the first block are folded."""
    blocks: list[Block] = []
    for group in groups:
        run = next((run for run in group.runs if run.artifacts_of("retrieval")), None)
        for dataset, artifact in run.artifacts_of("retrieval") if run else []:
            from_captions = [_example(example, example["images"]) for example in artifact["text_to_image"]]
            from_images = [_example(example, example["captions"]) for example in artifact["image_to_text"]]
            both: list[Block] = [
                RetrievalExamples("Caption → images", from_captions),
                RetrievalExamples("Image → captions", from_images),
            ]
            title = f"{dataset} · {group.label}, seed {run.seed if run else 0}"
            blocks.append(Details(title, both, open=not blocks))
    return [Text(LEGEND, "muted"), *blocks] if blocks else []


def _example(query: dict[str, Any], answers: list[dict[str, Any]]) -> RetrievalExample:
    shown = [replace(_item(a), similarity=float(a["similarity"]), correct=bool(a["correct"])) for a in answers]
    return RetrievalExample(_item(query), shown, int(query["rank"]))


def _item(entry: dict[str, Any]) -> RetrievalItem:
    """Return a caption (key `caption` of a query, `text` of an answer) or an image (key `src`)."""
    if "src" in entry:
        return RetrievalItem(image=_embedded(entry["src"]))
    return RetrievalItem(printable_line(entry["caption"] if "caption" in entry else entry["text"]))


def _embedded(src: str) -> str:
    """Return the image's data URI, or "" for a link: the page must not load external files."""
    return src if re.fullmatch(r"data:image/(jpeg|png|webp);base64,[A-Za-z0-9+/=]+", src) else ""
