"""Sections on what tasks stored beside their results: confusions, retrieval, ζ."""

import re
from collections import Counter
from itertools import chain
from typing import Any

from clipx.errors import printable_line
from evaluation.published import public_log
from evaluation.report.blocks import Block, Cell, Details, Figure, Table, Text, figures
from evaluation.report.figures import Line, line_plot, slug
from evaluation.runs.description import MISSING
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

MAX_CONFUSED_PAIRS = 10  # rows of a table of confused classes
EXAMPLES = (
    "Best answer first, each with its similarity (cosine, unless the embeddings are not normalised). "
    "Correct answers are ticked."
)
QUANTILES = {1: "5%", 3: "median", 5: "95%"}  # position in the logged list of ζ -> name
ENDS = {"most": "largest", "least": "smallest"}  # key in the artifact -> word in the title

Artifact = dict[str, Any]  # content of a task's artifact file: the data that the report draws
Members = list[tuple[RunGroup, list[Artifact]]]  # groups with one artifact per seed
ClassPair = tuple[int, int]  # numbers of the true and the predicted class


def artifacts_by_dataset(groups: list[RunGroup], kind: str) -> dict[str, Members]:
    """Return, by data set, the groups that have artifacts of a kind ("retrieval"), each with one per seed."""
    by_dataset: dict[str, dict[str, tuple[RunGroup, list[Artifact]]]] = {}
    for group in groups:
        for dataset, artifact in (found for run in group.runs for found in run.artifacts_of(kind)):
            by_group = by_dataset.setdefault(dataset, {})
            by_group.setdefault(group.label, (group, []))[1].append(artifact)
    return {dataset: list(by_group.values()) for dataset, by_group in by_dataset.items()}


def confusions(groups: list[RunGroup]) -> list[Block]:
    """Return a table of the most confused classes for each data set and group, summed over seeds."""
    tables: list[Block] = []
    for dataset, members in artifacts_by_dataset(groups, "confused").items():
        for group, artifacts in members:
            names = [str(name) for name in artifacts[0]["classnames"]]
            seeds = [seed for seed in artifacts if seed["classnames"] == artifacts[0]["classnames"]]
            counts = Counter[ClassPair]()
            for true, predicted, count in chain(*(seed["cells"] for seed in seeds)):
                counts[true, predicted] += count
            title = f"{dataset} · {group.label}" if len(groups) > 1 else dataset
            several = f" · sum of {len(seeds)} seeds" if len(seeds) > 1 else ""
            if (table := _most_confused(names, counts)).rows:  # none if all images are classified rightly
                tables.append(Details(f"{title}{several}", [table], open=not tables))
    return tables


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
        lines += [Line.of_finite(*curve) for curve in public_log(run, column).items()]
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
