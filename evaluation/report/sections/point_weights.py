"""Section "Point weights": weights of a point-set model over an image's patches and a caption's words."""

from typing import Any

from evaluation.report.blocks import Block, Data, Figure, Figures, Text
from evaluation.report.figures.svg import INK, drawing, short_all, slug
from evaluation.runs.groups import RunGroup

POSITIVE, NEGATIVE = (0.84, 0.19, 0.15), (0.13, 0.40, 0.67)  # RGB
LEGEND = (
    "Red: positive; blue: negative. Stronger colours and longer bars: larger absolute weights. Words are the model's "
    "tokens."
)


def point_weights(groups: list[RunGroup]) -> list[Block]:
    """Return the figures of the first seed of each group; nothing for models with a single point."""
    figures = []
    for group in groups:
        for dataset, artifact in group.runs[0].artifacts_of("weights"):
            for number, example in enumerate(artifact["shown"], 1):
                name = f"weights-{slug(dataset)}-{slug(group.label)}-{number}"
                title = f"{dataset} · {group.label}, seed {group.runs[0].seed}, pair {number}"
                figures.append(_patch_weights(f"{name}-image", title, example["pixels"], example["patches"]))
                figures.append(_word_weights(f"{name}-text", title, example["words"]))
    return [Text(LEGEND, "muted"), Figures(figures)] if figures else []


def _patch_weights(name: str, title: str, pixels: list[Any], patches: list[list[float]]) -> Figure:
    largest = max(abs(weight) for row in patches for weight in row) or 1.0
    overlay = [[(*_colour(weight), 0.75 * abs(weight) / largest) for weight in row] for row in patches]
    with drawing(name, 230, 230) as (plot, axes):
        extent = (0, 1, 1, 0)
        axes.imshow(pixels, extent=extent, interpolation="none")
        axes.imshow(overlay, extent=extent, interpolation="none")
        axes.set_xticks([])
        axes.set_yticks([])
        columns = ["row", *(f"column {at}" for at in range(len(patches[0])))]
        data = Data(columns, [[at, *row] for at, row in enumerate(patches)])
        return plot.to_figure(f"{title}: patch weights, largest absolute value {largest:.3g}", data)


def _word_weights(name: str, title: str, words: list[list[Any]]) -> Figure:
    weights = [float(weight) for _, weight in words]
    with drawing(name, 300, 60 + 16 * len(words)) as (plot, axes):
        axes.barh(range(len(words)), weights, 0.7, color=[_colour(weight) for weight in weights])
        axes.set_yticks(range(len(words)), short_all(str(word) for word, _ in words))
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        rows: list[list[str | float]] = [[str(word), float(weight)] for word, weight in words]
        return plot.to_figure(f"{title}: word weights", Data(["word", "weight"], rows), "weight")


def _colour(weight: float) -> tuple[float, float, float]:
    return POSITIVE if weight > 0 else NEGATIVE
