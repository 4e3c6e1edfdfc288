"""Zero-shot classification: the class whose mean prompt embedding is nearest to the image (Radford et al. 2021)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.datasets.kinds import Labelled
from evaluation.metrics import class_weights, hits, label_ranks, similarity
from evaluation.tasks.rows import ranked_items, row, split_name
from evaluation.types import Device, FeatureRequest, Features, Score, Task

SPLIT = "test"


def classifier(prompts: Tensor, classes: int, cosine: bool = True) -> Tensor:
    """Return class embeddings [classes, E]: the normalised mean of each class's normalised prompt embeddings.

    Args:
        prompts: [classes x templates, E], class by class.
        cosine: if False, take the plain mean, because the lengths of the embeddings matter (paper 5, section 4.2).
    """
    by_class = prompts.view(classes, -1, prompts.shape[1])
    if not cosine:
        return by_class.mean(dim=1)
    return F.normalize(F.normalize(by_class, dim=2).mean(dim=1), dim=1)


def confusion(predicted: Tensor, label: Tensor, classes: int) -> list[list[int]]:
    """Return counts by true class (row) and predicted class (column)."""
    counts = torch.bincount(label * classes + predicted, minlength=classes**2)
    rows: list[list[int]] = counts.view(classes, classes).tolist()
    return rows


class ZeroShot(Task):
    """Top-1, top-5 (with more than five classes) and mean per-class accuracy on the test split."""

    name = "zeroshot"
    kind = "labelled"
    version = 1
    needs = (SPLIT,)

    def requests(self, dataset: Labelled) -> list[FeatureRequest]:
        return [FeatureRequest(dataset.name, SPLIT, "images"), FeatureRequest(dataset.name, SPLIT, "prompts")]

    def score(self, dataset: Labelled, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows; the artifact is the confusion matrix."""
        images, prompts = (features[request] for request in self.requests(dataset))
        label, classes = dataset.labels(SPLIT), len(dataset.classnames)
        scores = similarity(images, classifier(prompts, classes, cosine))
        ranks = label_ranks(scores, label)
        equal, split = torch.ones(len(label)), split_name(SPLIT, dataset.prompts)
        metrics = [("top1", 1, equal), ("mean_per_class", 1, class_weights(label))]
        if classes > 5:
            metrics.insert(1, ("top5", 5, equal))
        rows = [
            row(self.name, dataset.short, split, metric, hits(ranks, k), weights, len(label), k / classes)
            for metric, k, weights in metrics
        ]
        matrix = confusion(scores.argmax(dim=1), label, classes)
        artifact = {"kind": "confusion", "classnames": dataset.classnames, "matrix": matrix}
        return Score(rows, artifact, ranked_items(split, "top1", ranks))
