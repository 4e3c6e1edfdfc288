"""Feature requests, result rows and items that several tasks share."""

import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.datasets.prompts import ENSEMBLE
from evaluation.metrics import bootstrap_interval, weighted_mean
from evaluation.types import CENTRED_NOTE, Dataset, FeatureRequest, Features, Items, Result, Task

CENTRED = "centred"  # a value of Settings.protocol


class CaptionTask(Task):
    """A task on the images and the captions of a data set's first split."""

    def requests(self, dataset: Dataset) -> list[FeatureRequest]:
        split = dataset.splits[0]
        return [FeatureRequest(dataset.name, split, "images"), FeatureRequest(dataset.name, split, "captions")]


def split_name(split: str, prompts: str) -> str:
    """Return the name of the split in result rows; it includes `prompts` unless they are the default."""
    return split if prompts == ENSEMBLE else f"{split}, prompts {prompts}"


def centred_note(protocol: str) -> str:
    """Return what protocol=centred adds to the names of splits; "" under another protocol."""
    return CENTRED_NOTE if protocol == CENTRED else ""


def protocol_hashes(protocol: str, split: str) -> dict[str, str]:
    """Return the hashes that tell rows under protocol=centred from others; {} under another protocol."""
    return {f"protocol/{split}": protocol} if protocol == CENTRED else {}


def sides(task: Task, dataset: Dataset, features: Features, protocol: str, cosine: bool) -> list[Tensor]:
    """Return the embeddings that the task requests, [n, E] each, one tensor for each modality.

    Under protocol=centred, without their mean, and normalised again if they were (GR-CLIP, Li et al. 2025, arXiv
    2507.19054). The mean is that of the scored images or texts; the authors take it from other data.
    """
    given = [features[request] for request in task.requests(dataset)]
    if protocol != CENTRED:
        return given
    centred = [side - side.mean(dim=0) for side in given]
    return [F.normalize(side, dim=1) for side in centred] if cosine else centred


def row(
    task: str, dataset: str, split: str, metric: str, hits: Tensor, weights: Tensor, n: int, chance: float | None
) -> Result:
    """Return a row with the weighted mean of `hits` and its bootstrap interval.

    Args:
        hits: [examples], 0..1; examples must be independent.
        weights: [examples], weight of each in the mean.
        n: number of queries, for the table; an example may stand for several queries.
    """
    low, high = bootstrap_interval(hits, weights)
    value = weighted_mean(hits, weights)
    return Result(task, dataset, split, metric, value, n, low, high, chance, higher_is_better=True)


def ranked_items(split: str, metric: str, ranks: Tensor) -> list[Items]:
    """Return the items of a metric that counts rank 1 as right; `ranks` int64 [n] of all examples of the split."""
    return [Items(split, metric, torch.arange(len(ranks)), ranks == 1, ranks)]


def by_category(metric: str, categories: list[str]) -> dict[str, Tensor]:
    """Return name -> mask of its examples, bool [n]: `metric` for all examples, `metric/CATEGORY` for each category."""
    label = category_labels(categories)
    everything = {metric: torch.ones(len(categories), dtype=torch.bool)}
    return everything | {f"{metric}/{name}": label == i for i, name in enumerate(dict.fromkeys(categories))}


def category_labels(categories: list[str]) -> Tensor:
    """Return the number of each example's category, int64 [n], in the order of first occurrence."""
    number = {category: i for i, category in enumerate(dict.fromkeys(categories))}
    return torch.tensor([number[category] for category in categories])
