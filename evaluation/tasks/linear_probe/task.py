"""Linear probe: logistic regression on frozen image embeddings (Radford et al. 2021; paper 5)."""

import torch
from torch import Tensor

from evaluation.datasets.kinds import Labelled
from evaluation.metrics import class_weights, hits, label_ranks
from evaluation.tasks.linear_probe.regression import GRID, Regression, Search, search
from evaluation.tasks.rows import ranked_items, row
from evaluation.types import Device, FeatureRequest, Features, Score, Task

SPLIT = "test"  # split that is scored; never used to choose C
VALIDATION_SHARE = 10  # without an official validation split, one training row in ten is used to choose C


class LinearProbe(Task):
    """Top-1 and mean per-class accuracy; C is chosen on a validation split; the final fit uses all splits but test.

    With a `variant` (a key of Encoder.image_variants), the probe takes these image features instead of the embeddings,
    and the names of task and metrics end in the variant's name.
    """

    kind = "labelled"
    version = 1
    needs = ("train", SPLIT)

    def __init__(self, variant: str = "") -> None:
        self.variant = variant
        self.variants = (variant,) if variant else ()
        self.suffix = f"_{variant.replace(' ', '_')}" if variant else ""
        self.name = f"linear_probe{self.suffix}"

    def requests(self, dataset: Labelled) -> list[FeatureRequest]:
        splits = [split for split in ("train", "val", SPLIT) if split in dataset.splits]
        return [FeatureRequest(dataset.name, split, "images", self.variant) for split in splits]

    def score(self, dataset: Labelled, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows; the artifact is the search for C. Run on `device`, or on the CPU if `device` is mps.

        mps has no double precision.
        """
        device = torch.device("cpu") if torch.device(device).type == "mps" else torch.device(device)
        *fitting, test = self.requests(dataset)
        known = torch.cat([features[request] for request in fitting]).to(device)
        labels = [dataset.labels(request.split) for request in fitting]
        label, classes = torch.cat(labels).to(device), len(dataset.classnames)
        train, validation = _split(labels)
        found = search(Regression(known[train], label[train], classes), known[validation], label[validation])
        probe = Regression(known, label, classes).fit(found.chosen)
        truth = dataset.labels(SPLIT)
        ranks = label_ranks(probe(features[test].to(device)).cpu(), truth)
        correct = hits(ranks, 1)
        # Chance of top-1: even on meaningless features, a probe learns the most frequent class.
        largest = torch.bincount(truth).max().item() / len(truth)
        rows = [
            row(self.name, dataset.short, SPLIT, f"{metric}{self.suffix}", correct, weights, len(truth), chance)
            for metric, weights, chance in (
                ("top1", torch.ones_like(correct), largest),
                ("mean_per_class", class_weights(truth), 1 / classes),
            )
        ]
        return Score(rows, _artifact(self.name, found), ranked_items(SPLIT, f"top1{self.suffix}", ranks))


def _split(labels: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the rows to fit on and the rows to choose C on: train and val, or a seeded 90/10 split of train."""
    total = sum(len(label) for label in labels)
    if len(labels) == 2:
        return torch.arange(len(labels[0])), torch.arange(len(labels[0]), total)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0))
    held_out = max(1, total // VALIDATION_SHARE)
    return order[held_out:].sort().values, order[:held_out].sort().values


def _artifact(kind: str, found: Search) -> dict[str, object]:
    tried = sorted(found.accuracy_of)
    return {
        "kind": kind,
        "C": [GRID[index] for index in tried],
        "validation_accuracy": [found.accuracy_of[index] for index in tried],
        "chosen_C": found.chosen,
    }
