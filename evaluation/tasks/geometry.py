"""Geometry of image-caption pairs in the shared space: gap, uniformity, alignment, margins (papers 1 and 4).

Shapes: E is the width of the embeddings.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.datasets.kinds import Captioned
from evaluation.geometry import alignment, distribution_gap, margins, modality_gap, uniformity
from evaluation.statistics import t_interval
from evaluation.tasks.rows import CaptionTask
from evaluation.types import Device, Features, Result, Score

PAIRS = 512  # for METRICS (paper 4, appendix E.2)
BATCH = 64  # for margins (paper 1, figures 3 and 6)
RESAMPLES = 100  # bootstrap resamples
QUANTILES = {"margin_q25": 0.25, "margin_q50": 0.5, "margin_q95": 0.95}
BINS, FIRST, LAST = 150, -1.0, 2.0  # histogram of the margins; its two end bins also count the values outside
DRAWN = 100  # pairs in the PCA figure
METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "gap": modality_gap,
    "uniformity": uniformity,
    "alignment": alignment,
    "distribution_gap": distribution_gap,
}


class Geometry(CaptionTask):
    """Gap, uniformity and alignment of 512 random pairs, margins in batches of 64; one caption per image; fixed seed.

    Embeddings are always normalised, as in the geometry probe during training (clipx/training/geometry_probe.py).
    """

    name = "geometry"
    kind = "captioned"
    version = 2

    def score(self, dataset: Captioned, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows, a histogram of the margins, and pairs in their first two principal components."""
        image, text = (F.normalize(features[request], dim=1) for request in self.requests(dataset))
        image, text = paired(image, text, dataset.image_of_caption(dataset.splits[0]))
        few = image[:PAIRS], text[:PAIRS]
        rows = []
        for metric, function in METRICS.items():
            value, error = function(*few), standard_error(function, *few)
            rows.append(self._row(dataset, metric, value, value - 1.96 * error, value + 1.96 * error, len(few[0])))
        batches = batched_margins(image, text)
        if len(batches):
            by_batch = {
                "margin_mean": batches.mean(dim=1),
                "margin_positive": (batches > 0).double().mean(dim=1),
                **{name: batches.quantile(q, dim=1) for name, q in QUANTILES.items()},
            }
            for metric, values in by_batch.items():
                mean = (float(values.mean()),) * 3  # value, low and high are equal: two batches give no useful interval
                estimate = t_interval(values.tolist()) if len(values) > 2 else mean
                rows.append(self._row(dataset, metric, *estimate, batches.numel()))
        artifact = {"kind": "geometry", "margins": histogram(batches), "pca": principal_components(*few)}
        return Score(rows, artifact)

    def _row(self, dataset: Captioned, metric: str, value: float, low: float, high: float, n: int) -> Result:
        higher_is_better = metric not in ("gap", "alignment", "distribution_gap")
        return Result(self.name, dataset.short, dataset.splits[0], metric, value, n, low, high, None, higher_is_better)


def paired(image: Tensor, text: Tensor, image_of_text: Tensor) -> tuple[Tensor, Tensor]:
    """Pair each captioned image with one of its captions; return the pairs' images and texts [n, E].

    Captions and order are random with a fixed seed. `image` [N, E], `text` [T, E], `image_of_text` int64 [T].
    """
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.randperm(len(text), generator=generator)
    owner, by_owner = image_of_text[shuffled].sort(stable=True)
    first = torch.cat([torch.ones(1, dtype=torch.bool), owner[1:] != owner[:-1]])  # each image's first caption
    order = torch.randperm(int(first.sum()), generator=generator)
    return image[owner[first][order]], text[shuffled[by_owner[first]][order]]


def batched_margins(image: Tensor, text: Tensor) -> Tensor:
    """Return the margins in whole batches of b pairs, float64 [batches, 2 b (b - 1)]; none of fewer than two pairs.

    b is 64, or half the number of pairs if there are fewer than 128, as an interval needs two batches; at least 2.
    """
    size = max(2, min(BATCH, len(image) // 2))
    starts = range(0, len(image) - size + 1, size)
    batches = [margins(image[s : s + size], text[s : s + size]) for s in starts]
    return torch.stack(batches) if batches else torch.empty(0, 0)


def histogram(batches: Tensor) -> dict[str, Any]:
    """Return counts of the margins in equal bins from FIRST to LAST."""
    width = (LAST - FIRST) / BINS
    bins = ((batches.flatten() - FIRST) / width).floor().clamp(0, BINS - 1).long()
    return {"first": FIRST, "last": LAST, "counts": torch.bincount(bins, minlength=BINS).tolist()}


def principal_components(image: Tensor, text: Tensor) -> dict[str, Any]:
    """Return coordinates of DRAWN pairs in the first two principal components of all pairs (paper 4, figure 1)."""
    features = torch.cat([image, text]).double()
    centred = features - features.mean(dim=0)
    _, axes = torch.linalg.eigh(centred.T @ centred)  # eigenvalues ascend
    axes = axes[:, -2:].flip(1)
    # make each axis' largest entry positive: eigh leaves the sign open
    axes = axes * axes.gather(0, axes.abs().argmax(dim=0, keepdim=True)).sign()
    coordinates = (centred @ axes).mul(1e4).round().div(1e4)
    n = len(image)
    return {"image": coordinates[:n][:DRAWN].tolist(), "text": coordinates[n:][:DRAWN].tolist()}


def standard_error(metric: Callable[[Tensor, Tensor], float], image: Tensor, text: Tensor) -> float:
    """Return the bootstrap standard error over pairs, with a fixed seed.

    A percentile interval would be biased: repeated pairs lower the rank of the features and make their mean noisier,
    which shifts gap and uniformity. This shift does not change the spread of the resampled values.
    """
    generator = torch.Generator().manual_seed(0)
    values = []
    for _ in range(RESAMPLES):
        chosen = torch.randint(len(image), (len(image),), generator=generator)
        values.append(metric(image[chosen], text[chosen]))
    return float(torch.tensor(values, dtype=torch.float64).std())
