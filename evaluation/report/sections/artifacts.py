"""Figures and examples from the artifacts that the tasks left: one block or more a task and data set."""

import re
from typing import Any

from evaluation.report.blocks import Block, Cell, Details, Figure, Gallery, Item, Query, Table, Text
from evaluation.report.figures import plots
from evaluation.runs.description import number
from evaluation.runs.groups import MetricSummary, RunGroup
from evaluation.runs.reader import Run
from evaluation.statistics import t_interval
from evaluation.types import printable_line

CONFUSED_PAIRS = 10  # rows of the table for many classes


def per_dataset(groups: list[RunGroup], kind: str) -> dict[str, list[tuple[RunGroup, list[dict[str, Any]]]]]:
    """Data set -> the groups that have an artifact of `kind` for it, with their seeds' artifacts."""
    found: dict[str, list[tuple[RunGroup, list[dict[str, Any]]]]] = {}
    for group in groups:
        of_group: dict[str, list[dict[str, Any]]] = {}
        for run in group.runs:
            for dataset, artifact in artifacts(run, kind):
                of_group.setdefault(dataset, []).append(artifact)
        for dataset, of_seeds in of_group.items():
            found.setdefault(dataset, []).append((group, of_seeds))
    return found


def artifacts(run: Run, kind: str) -> list[tuple[str, dict[str, Any]]]:
    """Data set and artifact of each artifact of `kind`."""
    return [
        (run.dataset(stem.partition("-")[2]), artifact)
        for stem, artifact in run.artifacts.items()
        if artifact.get("kind") == kind
    ]


def confusions(groups: list[RunGroup]) -> tuple[list[Figure], list[Block]]:
    """A matrix a group and data set, counts summed over seeds; tables of the worst pairs of many classes."""
    drawn: list[Figure] = []
    tables: list[Block] = []
    for dataset, found in per_dataset(groups, "confusion").items():
        for group, of_seeds in found:
            names = [str(name) for name in of_seeds[0]["classnames"]]
            same = [one["matrix"] for one in of_seeds if one["classnames"] == of_seeds[0]["classnames"]]
            matrix = [[sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*same, strict=True)]
            title = f"{dataset} · {group.label}" + (f" · {len(same)} seeds summed" if len(same) > 1 else "")
            name = f"confusion-{len(drawn) + 1:02d}-{slug(dataset)}-{slug(group.label)}"
            drawn.append(plots.confusion(name, f"{title}: % of each true class", names, matrix))
            if len(names) > plots.MAX_NAMED:
                tables.append(Details(f"{title}: most confused pairs", [_confused(names, matrix)], open=True))
    return drawn, tables


def _confused(names: list[str], matrix: list[list[int]]) -> Table:
    errors = [
        (count, count / max(1, sum(row)), names[true], names[predicted])
        for true, row in enumerate(matrix)
        for predicted, count in enumerate(row)
        if true != predicted and count > 0
    ]
    worst = sorted(errors, key=lambda error: (-error[0], error[2], error[3]))[:CONFUSED_PAIRS]
    rows = [
        [Cell(true), Cell(predicted), Cell(f"{count:,}", count), Cell(f"{share:.1%}", share)]
        for count, share, true, predicted in worst
    ]
    return Table(["True class", "Predicted as", "Count", "Share of the true class"], rows)


def pairs(groups: list[RunGroup], measures: list[MetricSummary]) -> list[Figure]:
    """Accuracy by category with 95% intervals: Student's t over the seeds, else the artifact's own."""
    drawn: list[Figure] = []
    for dataset, found in per_dataset(groups, "pairs").items():
        categories = list(
            dict.fromkeys(name for _, of_seeds in found for one in of_seeds for name in one["categories"])
        )
        bars = [_bars(group, of_seeds, categories) for group, of_seeds in found]
        chances = {m.chance for m in measures if m.task == "pairs" and m.dataset == dataset}
        chance = chances.pop() if len(chances) == 1 else None
        who = f" · {found[0][0].label}" if len(found) == 1 else ""
        name = f"pairs-{len(drawn) + 1:02d}-{slug(dataset)}"
        caption = f"{dataset}{who}: pair accuracy by category, whiskers 95% intervals"
        drawn.append(plots.bars(name, caption, categories, bars, chance))
    return drawn


def _bars(group: RunGroup, of_seeds: list[dict[str, Any]], categories: list[str]) -> plots.Bars:
    bars = plots.Bars(group.label, [], [], [])
    for category in categories:
        found = [one["categories"][category] for one in of_seeds if category in one["categories"]]
        if len(found) > 1:
            value, low, high = t_interval([float(one["value"]) for one in found])
        elif found:
            value, low, high = (float(found[0][key]) for key in ("value", "low", "high"))
        else:
            value = low = high = float("nan")
        bars.value.append(value)
        bars.low.append(low)
        bars.high.append(high)
    return bars


def probes(groups: list[RunGroup]) -> list[Figure]:
    """Validation accuracy against the regulariser; a ring marks the C that was chosen."""
    drawn: list[Figure] = []
    for dataset, found in per_dataset(groups, "linear_probe").items():
        lines = [
            plots.Line(group.label, list(map(float, one["C"])), list(map(float, one["validation_accuracy"])),
                       number(one, "chosen_C"))
            for group, of_seeds in found
            for one in of_seeds
        ]  # fmt: skip
        who = f" · {found[0][0].label}" if len(found) == 1 else ""
        caption = f"{dataset}{who}: linear probe, one line a seed; ring: chosen C"
        name = f"probe-{len(drawn) + 1:02d}-{slug(dataset)}"
        drawn.append(
            plots.curves(name, caption, lines, "C (inverse regularisation)", "validation accuracy", log_x=True)
        )
    return drawn


def retrievals(groups: list[RunGroup]) -> list[Block]:
    """Examples of the first seed of each group; all but the first are folded."""
    blocks: list[Block] = []
    for group in groups:
        run = next((run for run in group.runs if artifacts(run, "retrieval")), None)
        for dataset, artifact in artifacts(run, "retrieval") if run else []:
            galleries: list[Block] = [
                Gallery("Caption → images", [_from_caption(one) for one in artifact["text_to_image"]]),
                Gallery("Image → captions", [_from_image(one) for one in artifact["image_to_text"]]),
            ]
            title = f"{dataset} · {group.label}, seed {run.seed if run else 0}"
            blocks.append(Details(title, galleries, open=not blocks))
    if blocks:
        what = "Best first, with similarities: cosines, unless embeddings keep their length."
        blocks.insert(0, Text(f"{what} Correct answers are framed and ticked.", "muted"))
    return blocks


def _from_caption(one: dict[str, Any]) -> Query:
    answers = [Item("", _picture(a["src"]), float(a["similarity"]), bool(a["correct"])) for a in one["images"]]
    return Query(Item(printable_line(one["caption"]), "", None, False), answers, int(one["rank"]))


def _from_image(one: dict[str, Any]) -> Query:
    answers = [Item(printable_line(a["text"]), "", float(a["similarity"]), bool(a["correct"])) for a in one["captions"]]
    return Query(Item("", _picture(one["src"]), None, False), answers, int(one["rank"]))


def _picture(src: str) -> str:
    """Only embedded pictures: the page must not load anything from elsewhere."""
    return src if re.fullmatch(r"data:image/(jpeg|png|webp);base64,[A-Za-z0-9+/=]+", src) else ""


def slug(text: str) -> str:
    """Letters, digits, dot, dash and underscore of a name, for file names."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:60].strip("-.")
