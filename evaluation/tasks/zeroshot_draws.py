"""Zero-shot under several draws of a model's random features: its mean, and how much the draw changes it (paper 5)."""

import torch
from torch import Tensor

from clipx.models.heads import DRAWS
from evaluation.datasets.kinds import Labelled
from evaluation.metrics import class_weights, hits, label_ranks, similarity
from evaluation.tasks.rows import row
from evaluation.tasks.zeroshot import SPLIT, classifier, split_name
from evaluation.types import FeatureRequest, Features, Kind, Result, Score

SPREAD = "top1_spread_over_draws"
RESAMPLES = 1000


class ZeroShotDraws:
    """Top-1 accuracy over five draws, the first of which is that of all other tasks: its standard deviation and mean.

    The mean is what paper 5 reports for zero-shot (section 6.2), on some data sets of the mean per class.
    """

    name = "zeroshot_draws"
    kind: Kind = "labelled"
    version = 2
    needs: tuple[str, ...] = (SPLIT,)
    variants = tuple(f"draw {number}" for number in range(1, DRAWS))

    def requests(self, dataset: Labelled) -> list[FeatureRequest]:
        """Test images and prompts, by draw."""
        return [
            FeatureRequest(dataset.name, SPLIT, view, variant)
            for variant in ("", *self.variants)
            for view in ("images", "prompts")
        ]

    def groups(self, dataset: Labelled) -> list[dict[str, str]]:
        """One: the rows share their hashes."""
        return [{}]

    def score(
        self, dataset: Labelled, features: Features, device: torch.device | str = "cpu", cosine: bool = True
    ) -> Score:
        """Rows; the intervals are bootstraps over the examples."""
        asked, label, classes = self.requests(dataset), dataset.labels(SPLIT), len(dataset.classnames)
        correct = []
        for images, prompts in zip(asked[::2], asked[1::2], strict=True):
            scores = similarity(features[images], classifier(features[prompts], classes, cosine))
            correct.append(hits(label_ranks(scores, label), 1).double())
        by_draw, split = torch.stack(correct), split_name(dataset)
        low, high = _interval(by_draw)
        spread = Result(
            task=self.name,
            dataset=dataset.short,
            split=split,
            metric=SPREAD,
            value=float(by_draw.mean(dim=1).std()),
            n=len(label),
            low=low,
            high=high,
            chance=None,
            higher_is_better=False,
            seed=0,
            model="",
        )
        share = by_draw.mean(dim=0)  # of the draws that have the example right
        means = [
            row(self.name, dataset.short, split, f"{metric}_mean_over_draws", share, weights, len(label), 1 / classes)
            for metric, weights in (("top1", torch.ones_like(share)), ("mean_per_class", class_weights(label)))
        ]
        return Score([spread, *means])


def _interval(by_draw: Tensor) -> tuple[float, float]:
    """95%, of the standard deviation over draws [draws, n]."""
    generator = torch.Generator().manual_seed(0)
    n = by_draw.shape[1]
    spreads = [by_draw[:, torch.randint(n, (n,), generator=generator)].mean(dim=1).std() for _ in range(RESAMPLES)]
    low, high = torch.stack(spreads).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high
