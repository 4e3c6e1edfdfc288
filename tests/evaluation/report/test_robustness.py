"""Effective robustness: the runs' accuracies under shift beside those of the published models."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from evaluation.reference.models import models
from evaluation.report.sections.published import SHIFTS, robustness
from evaluation.runs.groups import MetricSummary, group_runs, summarise_metrics
from evaluation.runs.reader import Run, no_config
from evaluation.types import Result
from tests.helpers.published_rows import IMAGENET, row, templates

V2 = row("zeroshot", "imagenetv2", "top1", 10_000, **templates("imagenet1k"))
R = row("zeroshot", "imagenet_r", "top1", 30_000, **templates("imagenet1k"))


def metrics(*results: Result) -> list[MetricSummary]:
    return summarise_metrics(group_runs([Run(Path("r"), "mine", 0, no_config(), [], list(results), {}, {})]))


def test_points_are_means_over_the_shifts_that_the_runs_have() -> None:
    first, second = replace(V2, value=0.3), replace(R, value=0.5)
    (figure,) = robustness(metrics(IMAGENET, first, second))
    points = {str(name): (x, y) for name, x, y in figure.data.rows}
    assert points.pop("mine") == pytest.approx((IMAGENET.value, 0.4))
    assert "ImageNet v2, ImageNet-R" in figure.caption and len(points) == len(models())
    for name, model in models().items():
        both = [model.values[shift] for shift in (SHIFTS[0], SHIFTS[3])]
        assert points[name] == pytest.approx((model.values["ImageNet 1k"], fmean(both)))


def test_the_fit_of_the_published_models_is_the_least_squares_line_on_logit_axes() -> None:
    (figure,) = robustness(metrics(IMAGENET, V2))
    shares = np.array([point[1:] for point in figure.data.rows if point[0] != "mine"], dtype=float)
    x, y = np.log(shares / (1 - shares)).T
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    assert f"slope {slope:.2f}" in figure.caption


def test_nothing_is_drawn_without_imagenet_or_a_shift_or_with_too_few_images() -> None:
    assert robustness(metrics(IMAGENET)) == []
    assert robustness(metrics(V2)) == []
    assert robustness(metrics(IMAGENET, replace(V2, n=500))) == []
