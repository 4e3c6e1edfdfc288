"""Sections on what tasks stored beside their results: confusions, categories, probes, retrieval, ζ."""

import re
from collections import Counter
from statistics import fmean
from typing import Any

from clipx.errors import printable_line
from evaluation.report.blocks import Block, Cell, Data, Details, Figure, Table, Text, figures
from evaluation.report.figures import (
    COLUMN,
    DASHED,
    INK,
    Line,
    Shade,
    drawing,
    heat_map,
    line_plot,
    shared_limits,
    shorten,
    slug,
)
from evaluation.runs.description import MISSING, number
from evaluation.runs.groups import MetricSummary, RunGroup
from evaluation.runs.reader import Run
from evaluation.statistics import are_equal, t_interval

MAX_CONFUSED_PAIRS = 10  # rows of a table of confused classes
MAX_CLASSES = 20  # of a confusion matrix; with more classes, a table of the most confused ones follows
EXAMPLES = (
    "Best answer first, each with its similarity (cosine, unless the embeddings are not normalised). "
    "Correct answers are ticked."
)
QUANTILES = {1: "5%", 3: "median", 5: "95%"}  # position in the logged list of ζ -> name
ENDS = {"most": "largest", "least": "smallest"}  # key in the artifact -> word in the title

Artifact = dict[str, Any]  # content of a task's artifact file: the data that the report draws
Members = list[tuple[RunGroup, list[Artifact]]]  # groups with one artifact per seed
ClassPair = tuple[int, int]  # numbers of the true and the predicted class


def artifacts_by_dataset(groups: list[RunGroup], *kinds: str) -> dict[str, Members]:
    """Return, by data set, the groups that have artifacts of these kinds ("retrieval"), each with one per seed."""
    by_dataset: dict[str, dict[str, tuple[RunGroup, list[Artifact]]]] = {}
    for group in groups:
        for dataset, artifact in (found for run in group.runs for kind in kinds for found in run.artifacts_of(kind)):
            by_group = by_dataset.setdefault(dataset, {})
            by_group.setdefault(group.label, (group, []))[1].append(artifact)
    return {dataset: list(by_group.values()) for dataset, by_group in by_dataset.items()}


def task_details(groups: list[RunGroup], metrics: list[MetricSummary]) -> list[Block]:
    """Return the figures, then tables of the most confused classes."""
    matrices, tables = _confusions(groups)
    return [*figures([*matrices, *_accuracies_by_category(groups, metrics), *_probe_curves(groups)]), *tables]


def _confusions(groups: list[RunGroup]) -> tuple[list[Figure], list[Block]]:
    """Return one matrix per data set and group, summed over seeds; for many classes the most confused pairs."""
    matrices: list[Figure] = []
    tables: list[Block] = []
    for dataset, members in artifacts_by_dataset(groups, "confusion", "confused").items():
        for group, artifacts in members:
            names = [str(name) for name in artifacts[0]["classnames"]]
            seeds = [seed for seed in artifacts if seed["classnames"] == artifacts[0]["classnames"]]
            counts = sum(map(_counts, seeds), Counter[ClassPair]())
            several = f" · sum of {len(seeds)} seeds" if len(seeds) > 1 else ""
            title = _title(dataset, [(group, artifacts)], groups) + several
            if any("matrix" in seed for seed in seeds):  # the first versions also wrote one of many classes
                name = f"confusion-{len(matrices) + 1:02d}-{slug(dataset)}-{slug(group.label)}"
                matrices.append(confusion_matrix(name, f"{title}: % of each true class", names, counts))
            if len(names) > MAX_CLASSES:
                tables.append(Details(f"{title}: most confused classes", [_most_confused(names, counts)], open=True))
    return matrices, tables


def _counts(artifact: Artifact) -> Counter[ClassPair]:
    if "cells" in artifact:
        return Counter({(true, predicted): count for true, predicted, count in artifact["cells"]})
    rows = enumerate(artifact["matrix"])
    return Counter({(true, predicted): count for true, row in rows for predicted, count in enumerate(row)})


def confusion_matrix(name: str, caption: str, classnames: list[str], counts: Counter[ClassPair]) -> Figure:
    """Draw each row (true class) as shares in per cent; 0 is left out."""
    size = range(len(classnames))
    matrix = [[counts[true, predicted] for predicted in size] for true in size]
    shares = [[count / max(1, sum(row)) for count in row] for row in matrix]
    cells = [[Shade(f"{100 * share:.0f}" if share >= 0.005 else "", share) for share in row] for row in shares]
    data = Data(["true", *classnames], [[true, *row] for true, row in zip(classnames, matrix, strict=True)])
    return heat_map(name, caption, classnames, classnames, cells, data, "predicted", "true")


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


def _accuracies_by_category(groups: list[RunGroup], metrics: list[MetricSummary]) -> list[Figure]:
    drawn: list[Figure] = []
    for dataset, members in artifacts_by_dataset(groups, "pairs").items():
        rows = [m.row for m in metrics if (m.row.task, m.row.dataset) == ("pairs", dataset)]
        chances = {row.chance for row in rows if row.metric.startswith("pair_accuracy")}
        chance = chances.pop() if len(chances) == 1 else None
        name = f"pairs-{len(drawn) + 1:02d}-{slug(dataset)}"
        caption = f"{_title(dataset, members, groups)}: pair accuracy by category, with 95% intervals"
        drawn.append(bar_chart(name, caption, members, chance))
    return drawn


def bar_chart(name: str, caption: str, members: Members, chance: float | None) -> Figure:
    """Draw horizontal bars by category, one colour per group, with intervals and a dashed line at chance."""
    categories = list(dict.fromkeys(name for _, seeds in members for seed in seeds for name in seed["categories"]))
    rows: list[list[str | float]] = []
    thickness = 0.8 / len(members)
    labels = [group.label for group, _ in members]
    with drawing(name, COLUMN, 70 + len(categories) * (12 + 10 * len(members)), labels) as (plot, axes):
        for index, (group, seeds) in enumerate(members):
            for at, category in enumerate(categories):
                scores = [seed["categories"][category] for seed in seeds if category in seed["categories"]]
                if scores:
                    value, low, high = (100 * share for share in _interval(scores))
                    y = at - 0.4 + thickness * (index + 0.5)
                    axes.barh(y, value, thickness * 0.85, color=plot.colours[group.label], alpha=0.75)
                    axes.plot([low, high], [y, y], color=INK, linewidth=1.3)
                    rows.append([group.label, category, value, low, high])
        if chance is not None:
            axes.axvline(100 * chance, **DASHED)
            axes.text(100 * chance, 1.01, "chance", transform=axes.get_xaxis_transform(), ha="center")
        axes.set_yticks(range(len(categories)), shorten(categories))
        axes.set(xlim=(0, 100), ylim=(len(categories) - 0.5, -0.5))
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        return plot.to_figure(
            caption, Data(["method", "category", "accuracy (%)", "low", "high"], rows), "accuracy (%)"
        )


def _interval(scores: list[Artifact]) -> tuple[float, float, float]:
    """Return mean, low and high: Student's t from three seeds on; of fewer or equal ones the mean of their own."""
    values, lows, highs = ([float(score[key]) for score in scores] for key in ("value", "low", "high"))
    if len(scores) > 2 and not are_equal(values):
        return t_interval(values)
    return fmean(values), fmean(lows), fmean(highs)


def _probe_curves(groups: list[RunGroup]) -> list[Figure]:
    by_dataset = artifacts_by_dataset(groups, "linear_probe")
    panels = {dataset: _probes(members) for dataset, members in by_dataset.items()}
    limits = shared_limits([line for lines in panels.values() for line in lines])
    drawn: list[Figure] = []
    for dataset, lines in panels.items():
        caption = f"{_title(dataset, by_dataset[dataset], groups)}: linear probe, one line per seed; ring: chosen C"
        name = f"probe-{len(drawn) + 1:02d}-{slug(dataset)}"
        x, y = "C (inverse regularisation)", "validation accuracy (%)"
        drawn.append(line_plot(name, caption, lines, x, y, log_x=True, log_y=False, limits=limits))
    return drawn


def _probes(members: Members) -> list[Line]:
    return [
        Line(
            group.label,
            list(map(float, seed["C"])),
            [100 * float(accuracy) for accuracy in seed["validation_accuracy"]],
            mark=number(seed, "chosen_C"),
        )
        for group, seeds in members
        for seed in seeds
    ]


def _title(dataset: str, members: Members, groups: list[RunGroup]) -> str:
    """Return the data set, with the method if only one of several methods has results on it."""
    return f"{dataset} · {members[0][0].label}" if len(members) == 1 < len(groups) else dataset


def retrieval_examples(groups: list[RunGroup]) -> list[Block]:
    """Return examples from each group's first seed that has some; all but the first block are folded."""
    blocks: list[Block] = []
    for group in groups:
        run = next((run for run in group.runs if run.artifacts_of("retrieval")), None)
        for dataset, artifact in run.artifacts_of("retrieval") if run else []:
            both = [
                _examples("Caption → images", artifact["text_to_image"], "images"),
                _examples("Image → captions", artifact["image_to_text"], "captions"),
            ]
            title = f"{dataset} · {group.label}, seed {run.seed if run else 0}"
            blocks.append(Details(title, list[Block](both), open=not blocks))
    return [Text(EXAMPLES, "muted"), *blocks] if blocks else []


def _examples(title: str, queries: list[Artifact], answers: str) -> Table:
    """Return a row per query: the query, the rank of the first correct answer, the answers with their similarities."""
    width = max((len(query[answers]) for query in queries), default=0)
    rows = []
    for query in queries:
        rank = int(query["rank"])  # of a correct answer whose similarity is NaN: metrics.MISS, about 2**63
        place = Cell(f"rank {rank:,}" if rank < 2**48 else "not found", tone="good" if rank == 1 else "")
        found = [_item(answer, bool(answer["correct"]), float(answer["similarity"])) for answer in query[answers]]
        rows.append([_item(query), place, *found, *[Cell("")] * (width - len(found))])
    return Table([title, "Rank", *(str(place + 1) for place in range(width))], rows)


def _item(entry: Artifact, correct: bool = False, similarity: float | None = None) -> Cell:
    """Return a caption (key `caption` of a query, `text` of an answer) or an image (key `src`).

    A link is left out: the page must not load external files.
    """
    score = "" if similarity is None else f"{'✓ ' if correct else ''}{similarity:.2f}"
    if "src" not in entry:
        caption = printable_line(entry["caption"] if "caption" in entry else entry["text"])
        return Cell(caption, note=score)
    is_embedded = re.fullmatch(r"data:image/(jpeg|png|webp);base64,[A-Za-z0-9+/=]+", entry["src"])
    return Cell(score, tone="good" if correct else "", images=(entry["src"],) if is_embedded else ())


def popularity(groups: list[RunGroup]) -> list[Block]:
    """Return ζ, NUCLR's learned popularity (paper 3), of the first seed of each group; [] for runs without it.

    Figures show it over steps and against the true popularity; tables the captions with the largest and smallest ζ.
    """
    drawn: list[Figure] = []
    tables: list[Block] = []
    for group in groups:
        run = group.runs[0]
        drawn += _popularity_during_training(group, run)
        for dataset, artifact in run.artifacts_of("popularity"):
            title = f"{dataset} · {group.label}, seed {run.seed}"
            if curve := artifact["curve"]:
                lines = [Line(f"ζ of {side}s", curve["popularity"], curve[side]) for side in ("text", "image")]
                name = f"popularity-{slug(dataset)}-{slug(group.label)}"
                caption = f"{title}: mean ζ of a concept's samples against its true popularity"
                drawn.append(line_plot(name, caption, lines, "probability of the concept", "ζ", log_x=True))
            for end, captions in artifact["captions"].items():
                tables.append(Details(f"{title}: captions with the {ENDS[end]} ζ", [_captions(captions)]))
    return [*figures(drawn), *tables]


def _popularity_during_training(group: RunGroup, run: Run) -> list[Figure]:
    logged = [(float(line["step"]), line["columns"]) for line in run.log if line.get("columns")]
    drawn = []
    for column in sorted({name for _, columns in logged for name in columns if "_zeta_" in name}):
        known = [(step, columns[column]) for step, columns in logged if column in columns]
        lines = [Line.of_finite(name, [(step, of[at]) for step, of in known]) for at, name in QUANTILES.items()]
        caption = f"{group.label}, seed {run.seed}: quantiles of {column} over the samples"
        drawn.append(line_plot(f"{slug(column)}-{slug(group.label)}", caption, lines, "step", "ζ"))
    return drawn


def _captions(captions: list[Artifact]) -> Table:
    rows = [
        [
            Cell(caption["caption"]),
            Cell(f"{caption['text']:.4f}", caption["text"]),
            Cell(f"{caption['image']:.4f}", caption["image"]),
            Cell(MISSING) if (truth := caption["popularity"]) is None else Cell(f"{truth:.2%}", truth),
        ]
        for caption in captions
    ]
    return Table(["Caption", "ζ of the text", "ζ of the image", "True popularity"], rows)
