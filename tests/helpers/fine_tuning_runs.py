"""Runs before and after fine-tuning, with given scores on new sets and on sets to be kept."""

from typing import Any

from evaluation.runs.reader import Run
from tests.helpers.synthetic import Values, run

RECIPE = "finetune_mini"
START = {"new_shape": 0.2, "new_colour": 0.4, "scenes_shape": 0.9, "wds_cifar10": 0.8}
END = {
    "clip": {"new_shape": 0.7, "new_colour": 0.6, "scenes_shape": 0.5, "wds_cifar10": 0.7},
    "frozen": {"new_shape": 0.3, "new_colour": 0.5, "scenes_shape": 0.9, "wds_cifar10": 0.8},
}
MIDDLE = {"new_shape": 0.6, "new_colour": 0.6, "scenes_shape": 0.8, "wds_cifar10": 0.8}  # with interpolated weights
WAYS = ("image_to_text", "text_to_image")


def values(scores: dict[str, float], seed: int) -> Values:
    """Return zero-shot rows, and the recalls of one caption set, which fall with the seed."""
    rows = {("zeroshot", name, "top1"): score + 0.01 * seed * (name == "new_shape") for name, score in scores.items()}
    recalls = {("retrieval", "new_captions", f"{way}_recall@1"): scores["new_shape"] - 0.03 * seed for way in WAYS}
    return {**rows, **recalls}


def one_run(arm: str, seed: int, scores: dict[str, float], init: str | None = "arm:start", **data: Any) -> Run:
    """Return a fine-tuned run of this arm; `data` changes its settings of the data."""
    settings = {"model": {"init": init}, "data": {"kept": ["scenes_shape", "cifar10"], **data}}
    return run(RECIPE, arm, seed, values(scores, seed), settings=settings)


def all_runs(seeds: int = 4) -> list[Run]:
    """Return the start run and the fine-tuned run of each arm, for each seed."""
    starts = [run(RECIPE, "start", seed, values(START, 0)) for seed in range(seeds)]
    return starts + [one_run(arm, seed, scores) for arm, scores in END.items() for seed in range(seeds)]
