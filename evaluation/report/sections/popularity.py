"""What a report shows of learned popularities: zeta over training, against the truth, and its extremes."""

from typing import Any

from evaluation.report.blocks import Block, Cell, Details, Figure, Figures, Table
from evaluation.report.figures import plots
from evaluation.report.sections.artifacts import artifacts, slug
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

SHOWN = {1: "5%", 3: "median", 5: "95%"}  # place among the logged quantiles -> its name


def popularities(groups: list[RunGroup]) -> list[Block]:
    """Of the first seed of each group that has any; nothing for runs without zeta."""
    figures: list[Figure] = []
    tables: list[Block] = []
    for group in groups:
        for run in group.runs[:1]:
            figures += _over_training(group, run)
            for dataset, artifact in artifacts(run, "popularity"):
                title = f"{dataset} · {group.label}, seed {run.seed}"
                if artifact["curve"]:
                    figures.append(_against_truth(title, f"{slug(dataset)}-{slug(group.label)}", artifact["curve"]))
                for end, captions in artifact["captions"].items():
                    tables.append(Details(f"{title}: captions with the {end} zeta", [_captions(captions)]))
    return [Figures(figures), *tables] if figures else []


def _over_training(group: RunGroup, run: Run) -> list[Figure]:
    logged = [(line["step"], line["columns"]) for line in run.log if line.get("columns")]
    figures = []
    for column in sorted({name for _, columns in logged for name in columns if "_zeta_" in name}):
        steps = [float(step) for step, _ in logged]
        lines = [
            plots.Line(name, steps, [float(columns[column][place]) for _, columns in logged])
            for place, name in SHOWN.items()
        ]
        caption = f"{group.label}, seed {run.seed}: quantiles of {column} over the samples"
        figures.append(plots.curves(f"{slug(column)}-{slug(group.label)}", caption, lines, "step", "ζ"))
    return figures


def _against_truth(title: str, name: str, curve: dict[str, list[float]]) -> Figure:
    lines = [plots.Line(f"ζ of {side}s", curve["popularity"], curve[side]) for side in ("text", "image")]
    caption = f"{title}: mean zeta of the samples of a concept against its true popularity"
    return plots.curves(f"popularity-{name}", caption, lines, "probability of the concept", "ζ", log_x=True)


def _captions(found: list[dict[str, Any]]) -> Table:
    rows = [
        [
            Cell(one["caption"]),
            Cell(f"{one['text']:.4f}", one["text"]),
            Cell(f"{one['image']:.4f}", one["image"]),
            Cell("-") if one["popularity"] is None else Cell(f"{one['popularity']:.2%}", one["popularity"]),
        ]
        for one in found
    ]
    return Table(["Caption", "ζ of the text", "ζ of the image", "True popularity"], rows)
