"""Pair accuracy by category."""

from pathlib import Path

import torch

from evaluation.datasets.kinds import MinimalPairs
from evaluation.datasets.opening import open_dataset
from evaluation.tasks.composition import PairAccuracy
from tests.helpers import fakes

TASK = PairAccuracy()


def dataset(folder: Path, categories: tuple[str, ...]) -> MinimalPairs:
    opened = open_dataset(fakes.pairs(folder, categories))
    assert isinstance(opened, MinimalPairs)
    return opened


def test_a_category_is_scored_on_its_pairs_wherever_they_are(tmp_path: Path) -> None:
    data = dataset(tmp_path, ("size", "colour", "size", "colour", "colour"))
    images, captions = TASK.requests(data)
    image = fakes.embeddings(10, 0)
    text = image.clone()
    text[[2, 3]] = image[[3, 2]]  # swap the texts of pair 1, of category colour
    score = TASK.score(data, {images: image, captions: text})
    assert score.artifact is not None
    shown = score.artifact["categories"]
    assert shown["size"]["value"] == 1.0 and shown["size"]["n"] == 2
    torch.testing.assert_close(shown["colour"]["value"], 2 / 3)
    counts = {row.metric: row.n for row in score.results}
    assert counts == {"pair_accuracy": 5, "pair_accuracy/colour": 3, "pair_accuracy/size": 2}
    assert score.results[0].value == 0.8 and {row.chance for row in score.results} == {0.25}
