"""Accuracy of the choice between captions of an image: one is right, the others are wrong (SugarCrepe, ARO)."""

import torch

from evaluation.datasets.kinds import Choices
from evaluation.metrics import class_weights, hits, rank_of
from evaluation.tasks.rows import CaptionTask, by_category, category_labels, ranked_items, row
from evaluation.types import Device, Features, Score


class CaptionChoice(CaptionTask):
    """Share of the images whose right caption is nearer than every wrong one, over all images and by category.

    A tie counts against the model. Hsieh et al. 2023 report the categories; the mean over all images is our addition.
    Sets with `averaged` categories have one row with the mean over these categories, and no row per category (ARO,
    Yuksekgonul et al. 2023).
    """

    name = "choices"
    kind = "choices"
    version = 1

    def score(self, dataset: Choices, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the row `accuracy`, and either rows `accuracy/CATEGORY` or the row `mean_per_category`."""
        images, texts = (features[request].double() for request in self.requests(dataset))
        texts = texts.view(len(images), dataset.answers, -1)
        similarity = torch.einsum("ne,nae->na", images, texts).float()
        ranks, split = rank_of(similarity, similarity[:, 0]), dataset.splits[0]
        categories, averaged = dataset.categories(split), dataset.averaged
        metrics = by_category("accuracy", categories)
        if averaged is not None:
            counted = torch.tensor([category in averaged for category in categories])
            metrics = {"accuracy": metrics["accuracy"]} | ({"mean_per_category": counted} if counted.any() else {})
        label = category_labels(categories)
        rows, chance = [], 1 / dataset.answers
        for metric, mask in metrics.items():
            right = hits(ranks[mask], 1)
            weights = class_weights(label[mask]) if metric == "mean_per_category" else torch.ones_like(right)
            rows.append(row(self.name, dataset.short, split, metric, right, weights, len(right), chance))
        return Score(rows, items=ranked_items(split, "accuracy", ranks))
