"""Zero-shot accuracy with five draws of a model's random features: mean and standard deviation (paper 5)."""

import torch
from torch import Tensor

from clipx.models.heads import DRAWS
from evaluation.datasets.kinds import Labelled
from evaluation.metrics import (
    RESAMPLES,
    class_weights,
    hits,
    label_ranks,
    percentile_interval,
    similarity,
    weighted_mean,
)
from evaluation.tasks.rows import row, split_name
from evaluation.tasks.zeroshot import SPLIT, classifier
from evaluation.types import Device, FeatureRequest, Features, Result, Score, Task

SPREAD = "top1_spread_over_draws"


class ZeroShotDraws(Task):
    """Standard deviation of top-1 accuracy, and means of top-1 and mean per-class accuracy, over five draws.

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
            scores = similarity(features[images], classifier(features[prompts], classes, cosine))
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
