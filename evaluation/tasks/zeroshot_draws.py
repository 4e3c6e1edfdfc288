"""Zero-shot under several draws of a model's random features: how much the draw changes it (paper 5, table 5)."""

import torch
from torch import Tensor

from clipx.models.heads import DRAWS
from evaluation.datasets import Labelled
from evaluation.metrics import hits, label_ranks, similarity
from evaluation.tasks.zeroshot import SPLIT, classifier
from evaluation.types import FeatureRequest, Features, Kind, Result, Score

METRIC = "top1_spread_over_draws"
RESAMPLES = 1000


class ZeroShotDraws:
    """The standard deviation of top-1 accuracy over five draws, the first of which is that of all other tasks."""

    name = "zeroshot_draws"
    kind: Kind = "labelled"
    version = 1
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
        """One row; the interval is a bootstrap over the examples."""
        asked, label, classes = self.requests(dataset), dataset.labels(SPLIT), len(dataset.classnames)
        correct = []
        for images, prompts in zip(asked[::2], asked[1::2], strict=True):
            scores = similarity(features[images], classifier(features[prompts], classes, cosine))
            correct.append(hits(label_ranks(scores, label), 1).double())
        by_draw = torch.stack(correct)
        low, high = _interval(by_draw)
        spread = Result(
            task=self.name,
            dataset=dataset.short,
            split=SPLIT,
            metric=METRIC,
            value=float(by_draw.mean(dim=1).std()),
            n=len(label),
            low=low,
            high=high,
            chance=None,
            higher_is_better=False,
            seed=0,
            model="",
        )
        return Score([spread])


def _interval(by_draw: Tensor) -> tuple[float, float]:
    """95%, of the standard deviation over draws [draws, n]."""
    generator = torch.Generator().manual_seed(0)
    n = by_draw.shape[1]
    spreads = [by_draw[:, torch.randint(n, (n,), generator=generator)].mean(dim=1).std() for _ in range(RESAMPLES)]
    low, high = torch.stack(spreads).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high
