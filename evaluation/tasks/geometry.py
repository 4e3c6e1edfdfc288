"""The shape of the shared space on image-caption pairs: gap, uniformity, alignment, margins (papers 1 and 4)."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.datasets.kinds import Captioned
from evaluation.geometry import alignment, margins, modality_gap, uniformity
from evaluation.statistics import t_interval
from evaluation.types import FeatureRequest, Features, Kind, Result, Score

PAIRS = 512  # for gap, uniformity and alignment (paper 4, appendix E.2)
BATCH = 64  # for margins (paper 1, figures 3 and 6)
RESAMPLES = 100
QUANTILES = {"margin_q05": 0.05, "margin_q50": 0.5, "margin_q95": 0.95}
BINS, FIRST, LAST = 150, -1.0, 2.0  # of the margins' histogram; what lies outside is in the end bins
DRAWN = 100  # pairs of the PCA picture
SHAPES: dict[str, Callable[[Tensor, Tensor], float]] = {
    "gap": modality_gap,
    "uniformity": uniformity,
    "alignment": alignment,
}


class Geometry:
    """Rows on 512 random pairs, and margins within random batches of 64; one caption an image, seeded.

    Features are always normalised, as in the trace during training (clipx/training/geometry_probe.py).
    """

    name = "geometry"
    kind: Kind = "captioned"
    version = 2
    needs: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    def requests(self, dataset: Captioned) -> list[FeatureRequest]:
        """Images and captions."""
        split = dataset.splits[0]
        return [
            FeatureRequest(dataset.name, split, "images"),
            FeatureRequest(dataset.name, split, "captions"),
        ]

    def groups(self, dataset: Captioned) -> list[dict[str, str]]:
        """One: the rows share their hashes."""
        return [{}]

    def score(
        self, dataset: Captioned, features: Features, device: torch.device | str = "cpu", cosine: bool = True
    ) -> Score:
        """Rows; a histogram of the margins and the pairs in their first two principal components."""
        image, text = (F.normalize(features[request], dim=1) for request in self.requests(dataset))
        image, text = paired(image, text, dataset.image_of_caption(dataset.splits[0]))
        few = image[:PAIRS], text[:PAIRS]
        rows = [self._shape(dataset, metric, *few) for metric in SHAPES]
        batches = batched_margins(image, text)
        if batches is not None:
            measured = {
                "margin_mean": batches.mean(dim=1),
                "margin_positive": (batches > 0).double().mean(dim=1),
                **{name: batches.quantile(q, dim=1) for name, q in QUANTILES.items()},
            }
            rows += [
                self._row(dataset, metric, *_t_interval(values), batches.numel()) for metric, values in measured.items()
            ]
        artifact = {"kind": "geometry", "margins": histogram(batches), "pca": principal_components(*few)}
        return Score(rows, artifact)

    def _shape(self, dataset: Captioned, metric: str, image: Tensor, text: Tensor) -> Result:
        value, error = SHAPES[metric](image, text), standard_error(SHAPES[metric], image, text)
        return self._row(dataset, metric, value, value - 1.96 * error, value + 1.96 * error, len(image))

    def _row(self, dataset: Captioned, metric: str, value: float, low: float, high: float, n: int) -> Result:
        return Result(
            task=self.name,
            dataset=dataset.short,
            split=dataset.splits[0],
            metric=metric,
            value=value,
            n=n,
            low=low,
            high=high,
            chance=None,
            higher_is_better=metric not in ("gap", "alignment"),
            seed=0,
            model="",
        )


def paired(image: Tensor, text: Tensor, image_of_text: Tensor) -> tuple[Tensor, Tensor]:
    """[n, E] both: the images that have a caption in a seeded random order, each with one of its captions.

    Args:
        image: [N, E].
        text: [T, E].
        image_of_text: int64 [T].
    """
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.randperm(len(text), generator=generator)
    owner, place = image_of_text[shuffled].sort(stable=True)
    first = torch.cat([torch.ones(1, dtype=torch.bool), owner[1:] != owner[:-1]])  # each image's first caption
    order = torch.randperm(int(first.sum()), generator=generator)
    return image[owner[first][order]], text[shuffled[place[first]][order]]


def batched_margins(image: Tensor, text: Tensor) -> Tensor | None:
    """float64 [batches, 2 b (b - 1)], b = 64; whole batches only.

    Fewer than 128 pairs are halved, as one batch alone has no interval. None where there are not two pairs.
    """
    if len(image) < 2:
        return None
    size = max(2, min(BATCH, len(image) // 2))
    starts = range(0, len(image) - size + 1, size)
    return torch.stack([margins(image[s : s + size], text[s : s + size]) for s in starts])


def histogram(batches: Tensor | None) -> dict[str, Any]:
    """Counts of the margins in equal bins from `first` to `last`."""
    values = torch.zeros(0) if batches is None else batches.flatten()
    width = (LAST - FIRST) / BINS
    place = ((values - FIRST) / width).floor().clamp(0, BINS - 1).long()
    return {"first": FIRST, "last": LAST, "counts": torch.bincount(place, minlength=BINS).tolist()}


def principal_components(image: Tensor, text: Tensor) -> dict[str, Any]:
    """Coordinates of some pairs in the plane of most variance of all features (paper 4, figure 1)."""
    features = torch.cat([image, text]).double()
    centred = features - features.mean(dim=0)
    variance, axes = torch.linalg.eigh(centred.T @ centred)  # ascending
    axes = axes[:, -2:].flip(1)
    axes = axes * axes.gather(0, axes.abs().argmax(dim=0, keepdim=True)).sign()  # the sign is free: fix it
    places = (centred @ axes).mul(1e4).round().div(1e4)
    n = len(image)
    return {
        "image": places[:n][:DRAWN].tolist(),
        "text": places[n:][:DRAWN].tolist(),
        "variance": (variance[-2:].flip(0) / variance.sum().clamp(min=1e-30)).tolist(),
    }


def _t_interval(values: Tensor) -> tuple[float, float, float]:
    """Of the mean over batches, which are independent; the value alone where there is one batch."""
    of_batches: list[float] = values.tolist()
    return t_interval(of_batches) if len(of_batches) > 1 else (of_batches[0],) * 3


def standard_error(measure: Callable[[Tensor, Tensor], float], image: Tensor, text: Tensor) -> float:
    """Bootstrap over pairs, seeded.

    Percentiles of the resamples would not do: repeated pairs have a lower rank and a noisier mean, so gap and
    uniformity of a resample are biased. Their spread is not.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(RESAMPLES):
        chosen = torch.randint(len(image), (len(image),), generator=generator)
        drawn.append(measure(image[chosen], text[chosen]))
    return float(torch.tensor(drawn, dtype=torch.float64).std())
