"""Zero-shot classification, also over five draws of a model's random features (paper 5)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.models.heads import DRAWS
from evaluation.datasets.kinds import Labelled
from evaluation.metrics import (
    RESAMPLES,
    class_weights,
    hits,
    label_ranks,
    macro_f1,
    percentile_interval,
    predicted_class,
    similarity,
    weighted_mean,
)
from evaluation.tasks.rows import CENTRED, centred_note, protocol_hashes, ranked_items, row, sides, split_name
from evaluation.types import SPLIT, Device, FeatureRequest, Features, Result, Score, Task

MACRO_F1 = "macro_f1"
WORST_GROUP = {"worst_group_top1": 1, "worst_group_top5": 5}  # metric -> k


def classifier(prompts: Tensor, classes: int, cosine: bool = True) -> Tensor:
    """Return class embeddings [classes, E]: the normalised mean of each class's normalised prompt embeddings.

    `prompts` are [classes x templates, E], class by class. Without `cosine`, the plain mean is taken, because the
    lengths of the embeddings matter (paper 5, section 4.2).
    """
    by_class = prompts.view(classes, -1, prompts.shape[1])
    if not cosine:
        return by_class.mean(dim=1)
    return F.normalize(F.normalize(by_class, dim=2).mean(dim=1), dim=1)


def class_scores(images: Tensor, prompts: Tensor, classnames: list[str], cosine: bool = True) -> Tensor:
    """Return scores [n, classes]. Of classes with equal names, and so equal prompts, the first ranks higher.

    ImageNet's list has missile and sunglasses twice. Published numbers take the first of equal scores.
    """
    scores = similarity(images, classifier(prompts, len(classnames), cosine))
    first_of: dict[str, int] = {}
    for number, name in enumerate(classnames):
        if (first := first_of.setdefault(name, number)) < number:
            scores[:, number] = torch.nextafter(scores[:, first], scores.new_tensor(-torch.inf))
    return scores


def confusion(predicted: Tensor, label: Tensor, classnames: list[str]) -> dict[str, Any]:
    """Return the artifact: the counts that are not 0, as lists [true class, predicted class, count]."""
    classes = len(classnames)
    found, count = torch.unique(label * classes + predicted, return_counts=True)
    cells = torch.stack([found // classes, found % classes, count], dim=1)
    return {"kind": "confused", "classnames": classnames, "cells": cells.tolist()}


class ZeroShot(Task):
    """Zero-shot classification: the class whose mean prompt embedding is nearest to the image (Radford et al. 2021).

    Top-1, top-5 (with more than five classes) and mean per-class accuracy on the test split.

    Some sets have one more metric, which DataComp's evaluation (Gadre et al. 2023) reports. `macro_f1` is over the
    classes that occur. `worst_group_top1` and `worst_group_top5` are the lowest accuracy of a group of images, for
    example a region, with its interval.
    """

    name = "zeroshot"
    kind = "labelled"
    version = 2
    needs = (SPLIT,)

    def requests(self, dataset: Labelled) -> list[FeatureRequest]:
        return [FeatureRequest(dataset.name, SPLIT, "images"), FeatureRequest(dataset.name, SPLIT, "prompts")]

    def groups(self, dataset: Labelled) -> list[dict[str, str]]:
        return [protocol_hashes(dataset.protocol, SPLIT)]

    def score(self, dataset: Labelled, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows; the artifact has the confusions, and is None under protocol=centred."""
        images, prompts = sides(self, dataset, features, dataset.protocol, cosine)
        label, classes = dataset.labels(SPLIT), len(dataset.classnames)
        scores = class_scores(images, prompts, dataset.classnames, cosine)
        ranks = label_ranks(scores, label)
        equal, split = torch.ones(len(label)), split_name(SPLIT, dataset.prompts)
        split += centred_note(dataset.protocol)
        metrics = [("top1", 1, equal), ("mean_per_class", 1, class_weights(label))]
        if classes > 5:
            metrics.insert(1, ("top5", 5, equal))
        rows = [
            row(self.name, dataset.short, split, metric, hits(ranks, k), weights, len(label), k / classes)
            for metric, k, weights in metrics
        ]
        predicted = predicted_class(scores, label)
        if dataset.metric == MACRO_F1:
            value, low, high = macro_f1(predicted, label)
            rows.append(Result(self.name, dataset.short, split, MACRO_F1, value, len(label), low, high, None, True))
        if dataset.metric in WORST_GROUP:
            group = dataset.groups(SPLIT)
            assert group is not None, dataset.name
            found = hits(ranks, WORST_GROUP[dataset.metric])
            worst = min((found[group == one] for one in set(group.tolist())), key=lambda right: float(right.mean()))
            rows.append(
                row(self.name, dataset.short, split, dataset.metric, worst, torch.ones_like(worst), len(worst), None)
            )
        artifact = None if dataset.protocol == CENTRED else confusion(predicted, label, dataset.classnames)
        return Score(rows, artifact, ranked_items(split, "top1", ranks))


SPREAD = "top1_spread_over_draws"


class ZeroShotDraws(Task):
    """Zero-shot accuracy with five draws of a model's random features: mean and standard deviation (paper 5).

    For zero-shot, paper 5 reports means over draws (section 6.2): of top-1 accuracy, or on some data sets of mean
    per-class accuracy. All other tasks use the first draw only.
    """

    name = "zeroshot_draws"
    kind = "labelled"
    version = 3
    needs = (SPLIT,)
    variants = tuple(f"draw {number}" for number in range(1, DRAWS))

    def requests(self, dataset: Labelled) -> list[FeatureRequest]:
        return [
            FeatureRequest(dataset.name, SPLIT, view, variant)
            for variant in ("", *self.variants)
            for view in ("images", "prompts")
        ]

    def score(self, dataset: Labelled, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows, with bootstrap intervals over examples; the artifact has the accuracies of each draw."""
        requests, label, classes = self.requests(dataset), dataset.labels(SPLIT), len(dataset.classnames)
        correct = []
        for images, prompts in zip(requests[::2], requests[1::2], strict=True):
            scores = class_scores(features[images], features[prompts], dataset.classnames, cosine)
            correct.append(hits(label_ranks(scores, label), 1))
        by_draw, split = torch.stack(correct), split_name(SPLIT, dataset.prompts)  # [draws, n]
        deviation = float(by_draw.mean(dim=1).std())
        low, high = _deviation_interval(by_draw)
        spread = Result(
            self.name, dataset.short, split, SPREAD, deviation, len(label), low, high, None, higher_is_better=False
        )
        share = by_draw.mean(dim=0)  # [n], share of the draws that classify the example correctly
        by_metric = {"top1": torch.ones_like(share), "mean_per_class": class_weights(label)}
        means = [
            row(self.name, dataset.short, split, f"{metric}_mean_over_draws", share, weights, len(label), 1 / classes)
            for metric, weights in by_metric.items()
        ]
        accuracies = {name: [weighted_mean(draw, w) for draw in correct] for name, w in by_metric.items()}
        return Score([spread, *means], {"kind": self.name, **accuracies})


def _deviation_interval(by_draw: Tensor) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the standard deviation over draws; `by_draw` [draws, n]."""
    generator = torch.Generator().manual_seed(0)
    n = by_draw.shape[1]
    resampled = (by_draw[:, torch.randint(n, (n,), generator=generator)] for _ in range(RESAMPLES))
    return percentile_interval(torch.stack([one.mean(dim=1).std() for one in resampled]))
