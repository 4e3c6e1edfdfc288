"""Choose the published model that a report compares with a run: named by the user, or the nearest one."""

import math
import re
from dataclasses import dataclass

from evaluation.reference.columns import Column, counterpart
from evaluation.reference.models import PublishedModel, models
from evaluation.runs.description import last
from evaluation.runs.reader import Run
from evaluation.types import Result

# timm's image towers -> open_clip's towers of the same size
TIMM = {
    "resnet50": "RN50",
    "resnet101": "RN101",
    "vit_base_patch32": "ViT-B-32",
    "vit_base_patch16": "ViT-B-16",
    "vit_large_patch16": "ViT-L-16",
    "vit_large_patch14": "ViT-L-14",
    "vit_huge_patch14": "ViT-H-14",
}
DATA = {"datacomp_small": "commonpool_s"}  # data.name -> published training data; both are the unfiltered small pool


@dataclass(frozen=True)
class Comparison:
    """A result row compared with a published value."""

    model: PublishedModel
    column: Column
    difference: float  # ours minus published
    obstacle: str  # reason why the two values cannot be compared; "" if they can

    @property
    def published(self) -> float:
        """The published value, a fraction."""
        return self.model.values[self.column.title]


def compare(row: Result, model: PublishedModel) -> Comparison | None:
    """Return the comparison of a row with a model; None if open_clip publishes no such data set, task and metric."""
    column = counterpart(row)
    if column is None:
        return None
    return Comparison(model, column, row.value - model.values[column.title], column.obstacle(row))


def nearest(run: Run) -> PublishedModel:
    """Return the published model nearest to a run; if the run evaluates published weights, their own model.

    Models with the same training data come first. Among these, or among all if there are none, the model with the
    same image tower is nearest, else the nearest in FLOPs. Ties are broken by samples seen, then by the shortest name.
    """
    own = models().get(run.results[0].model.removeprefix("open_clip:")) if run.results else None
    if own is not None:
        return own
    data, tower, samples = run.config.data.name, _tower_of(run), _samples(run)
    flops = {image_tower(model.tower): model.image_flops for model in models().values()}

    def distance(model: PublishedModel) -> tuple[bool, float, float, int, str]:
        same_data = model.data == DATA.get(data, data)
        theirs = image_tower(model.tower)
        of_tower = 0.0 if theirs == tower else 1 + _log_distance(flops.get(tower), model.image_flops)
        return not same_data, of_tower, _log_distance(samples, model.samples), len(model.name), model.name

    return min(models().values(), key=distance)


def image_tower(name: str) -> str:
    """Return the image tower of an open_clip model: `ViT-B-32` for `roberta-ViT-B-32` and `ViT-B-32-quickgelu`."""
    return re.sub(r"^.*(?=ViT-)", "", name).removesuffix("-quickgelu")


def _tower_of(run: Run) -> str:
    kind, _, name = run.config.model.image.name.partition(":")
    if kind == "timm":
        return next((ours for timm, ours in TIMM.items() if re.fullmatch(rf"{timm}([_.].*)?", name)), "")
    return image_tower(name)


def _samples(run: Run) -> float | None:
    given = run.config.train.samples
    return last(run, "samples") or (float(given) if given else None)


def _log_distance(ours: float | None, theirs: float | None) -> float:
    return abs(math.log(ours / theirs)) if ours and theirs else math.inf
