"""Accuracy of the choice between captions of an image: one is right, the others differ in a detail (SugarCrepe)."""

import torch

from evaluation.datasets.kinds import Choices
from evaluation.metrics import hits, rank_of
from evaluation.tasks.rows import CaptionTask, by_category, ranked_items, row
from evaluation.types import Device, Features, Score


class CaptionChoice(CaptionTask):
    """Share of the images whose right caption is nearer than their wrong ones, over all images and by category.

    A tie counts against the model. Hsieh et al. 2023 report the categories; the mean over all images is our addition.
    """

    name = "choices"
    kind = "choices"
    version = 1

    def score(self, dataset: Choices, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows `accuracy` and `accuracy/CATEGORY`."""
        images, texts = (features[request].double() for request in self.requests(dataset))
        texts = texts.view(len(images), dataset.answers, -1)
        similarity = torch.einsum("ne,nae->na", images, texts).float()
        ranks, split = rank_of(similarity, similarity[:, 0]), dataset.splits[0]
        rows, chance = [], 1 / dataset.answers
        for metric, mask in by_category("accuracy", dataset.categories(split)).items():
            right = hits(ranks[mask], 1)
            rows.append(row(self.name, dataset.short, split, metric, right, torch.ones_like(right), len(right), chance))
        return Score(rows, items=ranked_items(split, "accuracy", ranks))
