"""Result rows: the value, its interval and its chance from hits by example."""

from torch import Tensor

from evaluation.metrics import bootstrap_interval, weighted_mean
from evaluation.types import Result


def row(
    task: str,
    dataset: str,
    split: str,
    metric: str,
    hits: Tensor,
    weights: Tensor,
    n: int,
    chance: float | None,
) -> Result:
    """A result row; the runner adds model, seed and hashes, as tasks do not see the model.

    Args:
        hits: [independent examples], 0..1.
        weights: of each example in the mean.
        n: how many queries are behind the value.
    """
    low, high = bootstrap_interval(hits, weights)
    return Result(
        task=task,
        dataset=dataset,
        split=split,
        metric=metric,
        value=weighted_mean(hits, weights),
        n=n,
        low=low,
        high=high,
        chance=chance,
        higher_is_better=True,
        seed=0,
        model="",
    )
