"""Section "Learned popularity": zeta, NUCLR's learned popularity of each image and each text (paper 3).

Figures show it over steps and against the true popularity; tables show captions with the largest and smallest zeta.
"""

from typing import Any

from evaluation.report.blocks import Block, Cell, Details, Figure, Figures, Table
from evaluation.report.figures.plots import Line, line_plot
from evaluation.report.figures.svg import slug
from evaluation.runs.description import MISSING
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

QUANTILES = {1: "5%", 3: "median", 5: "95%"}  # position in the logged list -> name
ENDS = {"most": "largest", "least": "smallest"}  # key in the artifact -> word in the title


def popularity(groups: list[RunGroup]) -> list[Block]:
    """Return the figures and captions of the first seed of each group; nothing for runs without zeta."""
    figures: list[Figure] = []
    tables: list[Block] = []
    for group in groups:
        run = group.runs[0]
        figures += _during_training(group, run)
        for dataset, artifact in run.artifacts_of("popularity"):
            title = f"{dataset} · {group.label}, seed {run.seed}"
            if artifact["curve"]:
                figures.append(_against_truth(title, f"{slug(dataset)}-{slug(group.label)}", artifact["curve"]))
            for end, captions in artifact["captions"].items():
                tables.append(Details(f"{title}: captions with the {ENDS[end]} ζ", [_captions(captions)]))
    return [Figures(figures), *tables] if figures else []


def _during_training(group: RunGroup, run: Run) -> list[Figure]:
    logged = [(line["step"], line["columns"]) for line in run.log if line.get("columns")]
    figures = []
    for column in sorted({name for _, columns in logged for name in columns if "_zeta_" in name}):
        steps = [float(step) for step, _ in logged]
        lines = [
            Line(quantile, steps, [float(columns[column][position]) for _, columns in logged])
            for position, quantile in QUANTILES.items()
        ]
        caption = f"{group.label}, seed {run.seed}: quantiles of {column} over the samples"
        figures.append(line_plot(f"{slug(column)}-{slug(group.label)}", caption, lines, "step", "ζ"))
    return figures


def _against_truth(title: str, name: str, curve: dict[str, list[float]]) -> Figure:
    lines = [Line(f"ζ of {side}s", curve["popularity"], curve[side]) for side in ("text", "image")]
    caption = f"{title}: mean ζ of a concept's samples against its true popularity"
    return line_plot(f"popularity-{name}", caption, lines, "probability of the concept", "ζ", log_x=True)


def _captions(captions: list[dict[str, Any]]) -> Table:
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
