"""Accuracy on minimal pairs: two images and two statements that differ in one visual pattern (MMVP-VLM)."""

import torch

from evaluation.datasets.kinds import MinimalPairs
from evaluation.metrics import pair_hits
from evaluation.tasks.rows import CaptionTask, row, split_name
from evaluation.types import Device, Features, Items, Score

CHANCE = 0.25  # each of two statements finds its image with probability 1/2


class PairAccuracy(CaptionTask):
    """Pair accuracy over all pairs and by category (`pair_accuracy/colour`)."""

    name = "pairs"
    kind = "pairs"
    version = 1

    def score(self, dataset: MinimalPairs, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows, and the categories for the report."""
        images, texts = (features[request].double() for request in self.requests(dataset))
        images, texts = images.view(-1, 2, images.shape[1]), texts.view(-1, 2, texts.shape[1])
        matched = pair_hits((images @ texts.mT).float())
        split = dataset.splits[0]
        categories = dataset.categories(split)
        masks = {"pair_accuracy": torch.ones(len(matched), dtype=torch.bool)} | {
            f"pair_accuracy/{category}": torch.tensor([c == category for c in categories])
            for category in dict.fromkeys(categories)
        }
        rows = []
        for metric, mask in masks.items():
            hits, named = matched[mask], split_name(split, dataset.prompts)
            rows.append(row(self.name, dataset.short, named, metric, hits, torch.ones_like(hits), len(hits), CHANCE))
        by_category = {
            r.metric.partition("/")[2]: {"value": r.value, "low": r.low, "high": r.high, "n": r.n} for r in rows[1:]
        }
        items = Items(split_name(split, dataset.prompts), "pair_accuracy", torch.arange(len(matched)), matched > 0)
        return Score(rows, {"kind": "pairs", "categories": by_category}, [items])
