"""Published results beside ours: columns of the tables of results, and of the CSV."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from evaluation.reference.columns import counterpart
from evaluation.reference.models import PublishedModel, models, source
from evaluation.reference.nearest import Comparison, compare, nearest
from evaluation.report.blocks import Cell, Figure
from evaluation.report.figures.geometry import Scale, scatter_plot
from evaluation.runs.description import digits
from evaluation.runs.groups import MetricSummary
from evaluation.runs.reader import Run
from evaluation.types import Result

NEAREST = (
    "The nearest published model is chosen by training data first, then by image tower, then by number of samples "
    "seen; reference=[NAME/TAG] chooses other models."
)
IMAGENET = "ImageNet 1k"
SHIFTS = ("ImageNet v2", "ImageNet Sketch", "ImageNet-A", "ImageNet-R", "ObjectNet")  # titles of open_clip's columns
CSV = ("published_model", "published", "published_difference", "not_compared")


class Published:
    """Published models beside the results of some runs; without columns if no result has a counterpart."""

    def __init__(self, runs: list[Run], named: Sequence[PublishedModel] = ()) -> None:
        """`named`: the models to compare with; by default the nearest one to each run."""
        self._named = named
        self._models = {run.path: list(named) or [nearest(run)] for run in runs}
        found = any(self.comparisons(run, row) for run in runs for row in run.results)
        columns = [model.name for model in named] or ["Nearest published"]
        self.columns = columns if found else []
        self.csv_columns = [f"{name}_{at}" if at else name for at in range(len(self.columns)) for name in CSV]
        self.note = " ".join([f"Published: {source()}.", *([] if named else [NEAREST])]) if found else ""

    def comparisons(self, run: Run, row: Result) -> list[Comparison]:
        """Return the row's comparison with each model; [] if the row has no published counterpart."""
        return [found for model in self._models[run.path] if (found := compare(row, model))]

    def cells(self, run: Run, row: Result) -> list[Cell]:
        """Return one cell for each of `columns`."""
        cells = [_cell(one) for one in self.comparisons(run, row)]
        return cells or [Cell("")] * len(self.columns)

    def csv_cells(self, run: Run, row: Result) -> list[object]:
        """Return one value for each of `csv_columns`."""
        values: list[object] = []
        for one in self.comparisons(run, row):
            values += [one.model.name, one.published, "" if one.obstacle else one.difference, one.obstacle]
        return values or [""] * len(self.csv_columns)


def _cell(one: Comparison) -> Cell:
    if one.obstacle:
        return Cell("not compared", tone="muted", note=one.obstacle)
    return Cell(f"{one.published:.4f}", one.published, note=f"{one.model.name}, ours {digits(one.difference, '+')}")


def robustness(headline: list[MetricSummary]) -> list[Figure]:
    """Plot the mean accuracy on the shifted ImageNets that all groups have, against the accuracy on ImageNet.

    Published models are grey. The dashed line is their least-squares fit on logit axes; a model's distance above it is
    its effective robustness (Taori et al. 2020). Returns [] if the groups share no such results.
    """
    ours: dict[str, dict[str, float]] = {}
    for metric in headline:
        column = counterpart(metric.row)
        if column and not column.obstacle(metric.row):
            ours.setdefault(metric.group.label, {})[column.title] = metric.row.value
    ours = {label: values for label, values in ours.items() if IMAGENET in values}
    shifts = [shift for shift in SHIFTS if ours and all(shift in values for values in ours.values())]
    if not shifts:
        return []
    theirs = {model.name: model.values for model in models().values()}
    points, grey = (
        {name: (values[IMAGENET], fmean(values[shift] for shift in shifts)) for name, values in of_models.items()}
        for of_models in (ours, theirs)
    )
    x, y = (np.array(axis) for axis in zip(*grey.values(), strict=True))
    slope, intercept = np.polyfit(_logit(x), _logit(y), 1)
    ends = np.linspace(x.min(), x.max(), 50)
    fitted = 1 / (1 + np.exp(-(slope * _logit(ends) + intercept)))
    caption = (
        f"Effective robustness: mean accuracy on {', '.join(shifts)} against ImageNet. Grey: {len(grey)} published "
        f"models, dashed: their fit, slope {slope:.2f}"
    )
    line = list(zip(ends.tolist(), fitted.tolist(), strict=True))
    scales: tuple[Scale, Scale] = ("logit", "logit")
    return [scatter_plot("robustness", caption, points, "ImageNet accuracy", "mean accuracy", scales, grey, line)]


def _logit(share: Any) -> Any:
    return np.log(share / (1 - share))
