"""Accuracy on minimal pairs: two images and two statements that differ in one detail (MMVP-VLM, Winoground)."""

import torch
from torch import Tensor

from evaluation.datasets.kinds import MinimalPairs
from evaluation.metrics import pair_hits
from evaluation.tasks.rows import CaptionTask, by_category, row, split_name
from evaluation.types import Device, Features, Items, Score

CHANCE = 0.25  # each of two statements finds its image with probability 1/2
GROUP_CHANCE = 1 / 6  # both right scores are above both wrong ones, in 4 of 24 orders (Thrush et al. 2022, table 3)


class PairAccuracy(CaptionTask):
    """Share of the pairs in which each statement finds its image, over all pairs and by category.

    The metric `pair_accuracy` is Winoground's image score; by category it is, for example, `pair_accuracy/colour`. Sets
    with `both_ways` also get `text_score` (each image finds its statement) and `group_score` (both), also by category.
    """

    name = "pairs"
    kind = "pairs"
    version = 1

    def score(self, dataset: MinimalPairs, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows; the artifact has the pair accuracy of each category."""
        images, texts = (features[request].double() for request in self.requests(dataset))
        images, texts = images.view(-1, 2, images.shape[1]), texts.view(-1, 2, texts.shape[1])
        similarity = (images @ texts.mT).float()
        images_found = pair_hits(similarity)
        metrics: dict[str, tuple[Tensor, float]] = {"pair_accuracy": (images_found, CHANCE)}
        if dataset.both_ways:
            texts_found = pair_hits(similarity.mT)
            metrics |= {"text_score": (texts_found, CHANCE), "group_score": (images_found * texts_found, GROUP_CHANCE)}
        split, categories = dataset.splits[0], dataset.categories(dataset.splits[0])
        named = split_name(split, dataset.prompts)
        rows, items = [], []
        for metric, (matched, chance) in metrics.items():
            for name, mask in by_category(metric, categories).items():
                hits = matched[mask]
                rows.append(row(self.name, dataset.short, named, name, hits, torch.ones_like(hits), len(hits), chance))
            items.append(Items(named, metric, torch.arange(len(matched)), matched > 0))
        shown = {
            one.metric.partition("/")[2]: {"value": one.value, "low": one.low, "high": one.high, "n": one.n}
            for one in rows
            if one.metric.startswith("pair_accuracy/")
        }
        return Score(rows, {"kind": "pairs", "categories": shown}, items)
