"""Minimal pairs: two images and two statements that differ in one visual pattern, as MMVP-VLM has them."""

import torch

from evaluation.datasets.kinds import MinimalPairs as PairSet
from evaluation.metrics import pair_hits
from evaluation.tasks.rows import row
from evaluation.types import FeatureRequest, Features, Kind, Score

CHANCE = 0.25  # two statements, each of which finds its image by chance


class PairAccuracy:
    """Pair accuracy, over all pairs and by category (`pair_accuracy/colour`)."""

    name = "pairs"
    kind: Kind = "pairs"
    version = 1
    needs: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    def requests(self, dataset: PairSet) -> list[FeatureRequest]:
        """Images and captions."""
        split = dataset.splits[0]
        return [
            FeatureRequest(dataset.name, split, "images"),
            FeatureRequest(dataset.name, split, "captions"),
        ]

    def groups(self, dataset: PairSet) -> list[dict[str, str]]:
        """One: the rows share their hashes."""
        return [{}]

    def score(
        self, dataset: PairSet, features: Features, device: torch.device | str = "cpu", cosine: bool = True
    ) -> Score:
        """Rows, and the categories for the report."""
        images, texts = (features[request].double() for request in self.requests(dataset))
        images, texts = images.view(-1, 2, images.shape[1]), texts.view(-1, 2, texts.shape[1])
        matched = pair_hits((images @ texts.mT).float())
        split = dataset.splits[0]
        categories = dataset.categories(split)
        chosen = {"pair_accuracy": torch.ones(len(matched), dtype=torch.bool)} | {
            f"pair_accuracy/{category}": torch.tensor([c == category for c in categories])
            for category in dict.fromkeys(categories)
        }
        rows = []
        for metric, mask in chosen.items():
            hits = matched[mask]
            rows.append(row(self.name, dataset.short, split, metric, hits, torch.ones_like(hits), len(hits), CHANCE))
        by_category = {
            r.metric.partition("/")[2]: {"value": r.value, "low": r.low, "high": r.high, "n": r.n} for r in rows[1:]
        }
        return Score(rows, {"kind": "pairs", "categories": by_category})
