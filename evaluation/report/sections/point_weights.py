"""Drawings of the weights of point sets: over an image's patches, and of a caption's words."""

from typing import Any

from evaluation.report.blocks import Block, Figure, Figures, Text
from evaluation.report.figures.svg import INK, canvas_of, drawing, figure_of, short
from evaluation.report.sections.artifacts import artifacts, slug
from evaluation.runs.groups import RunGroup

RED, BLUE = (0.84, 0.19, 0.15), (0.13, 0.40, 0.67)  # weights above and below 0


def weights(groups: list[RunGroup]) -> list[Block]:
    """Of the first seed of each group that has any; nothing for models of one point."""
    figures = []
    for group in groups:
        for dataset, artifact in artifacts(group.runs[0], "weights"):
            for number, one in enumerate(artifact["shown"], 1):
                name = f"weights-{slug(dataset)}-{slug(group.label)}-{number}"
                title = f"{dataset} · {group.label}, seed {group.runs[0].seed}, pair {number}"
                figures += [_patches(f"{name}-image", title, one), _words(f"{name}-text", title, one["words"])]
    said = "Red: positive, blue: negative; the deeper, the larger. Words are cut as the model reads them."
    return [Text(said, "muted"), Figures(figures)] if figures else []


def _patches(name: str, title: str, one: dict[str, Any]) -> Figure:
    largest = max(abs(w) for row in one["patches"] for w in row) or 1.0
    overlay = [[(*(RED if w > 0 else BLUE), 0.75 * abs(w) / largest) for w in row] for row in one["patches"]]
    with drawing(name):
        canvas, axes = canvas_of(230, 230)
        extent = (0, 1, 1, 0)
        axes.imshow(one["pixels"], extent=extent, interpolation="none")
        axes.imshow(overlay, extent=extent, interpolation="none")
        axes.set_xticks([])
        axes.set_yticks([])
        return figure_of(canvas, name, f"{title}: weights of the patches, largest {largest:.3g}")


def _words(name: str, title: str, words: list[list[Any]]) -> Figure:
    values = [float(value) for _, value in words]
    with drawing(name):
        canvas, axes = canvas_of(300, 60 + 16 * len(words))
        axes.barh(range(len(words)), values, 0.7, color=[RED if value > 0 else BLUE for value in values])
        axes.set_yticks(range(len(words)), [short(str(word)) for word, _ in words])
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.invert_yaxis()
        axes.set_xlabel("weight")
        axes.tick_params(axis="y", length=0)
        return figure_of(canvas, name, f"{title}: weights of the words")
