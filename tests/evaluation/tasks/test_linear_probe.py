"""The linear probe: separable features, an official validation split, and chance of unequal classes."""

from pathlib import Path

import torch

from evaluation.datasets.kinds import Labelled
from evaluation.datasets.opening import open_dataset
from evaluation.tasks.linear_probe import LinearProbe
from evaluation.types import Features
from tests.helpers import fakes

TASK = LinearProbe()
CLASSES = 4


def dataset(folder: Path, train: int = 240, test: int = 400) -> Labelled:
    opened = open_dataset(fakes.labelled(folder, classes=CLASSES, train=train, test=test))
    assert isinstance(opened, Labelled)
    return opened


def features(data: Labelled, signal: float) -> Features:
    """Return random unit vectors plus `signal` times a unit vector per class."""
    found = {}
    for request in TASK.requests(data):
        label = data.labels(request.split)
        noise = fakes.embeddings(len(label), seed=len(label))
        found[request] = noise + signal * torch.eye(CLASSES, fakes.WIDTH)[label]
    return found


def test_separable_features_are_classified(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    rows = TASK.score(data, features(data, signal=2.0)).results
    assert [row.metric for row in rows] == ["top1", "mean_per_class"]
    assert all(row.value > 0.97 and row.n == 400 and row.split == "test" for row in rows)


def test_an_official_validation_split_is_used_to_choose_c(tmp_path: Path) -> None:
    data = dataset(tmp_path, train=40)
    samples = [{"cls": str(i % CLASSES).encode(), "png": fakes.picture(i)} for i in range(30)]
    fakes.shard(tmp_path / "val" / "0.tar", samples)
    (tmp_path / "val" / "nshards.txt").write_text("1")
    data = dataset(tmp_path, train=40)
    assert [request.split for request in TASK.requests(data)] == ["train", "val", "test"]
    found = features(data, signal=0.6)
    artifact = TASK.score(data, found).artifact
    assert artifact is not None
    accuracies = torch.tensor(artifact["validation_accuracy"]) * 30
    torch.testing.assert_close(accuracies, accuracies.round())  # multiples of 1/30: scored on val alone


def test_chance_of_unequal_classes_is_the_share_of_the_largest(tmp_path: Path) -> None:
    data = dataset(tmp_path, test=402)
    truth = data.labels("test").tolist()
    top1, mean_per_class = TASK.score(data, features(data, signal=0.0)).results
    assert top1.chance == max(truth.count(c) for c in truth) / len(truth)
    assert mean_per_class.chance == 1 / CLASSES
