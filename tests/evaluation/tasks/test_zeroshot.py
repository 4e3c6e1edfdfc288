"""The zero-shot task: a perfect model scores 1, confusions are counted, and DataComp's metrics are right."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor

from evaluation.datasets.kinds import Labelled
from evaluation.datasets.named import NAMED
from evaluation.metrics import label_ranks
from evaluation.tasks.zeroshot import ZeroShot, class_scores, classifier, confusion
from evaluation.types import Features
from tests.helpers import fakes

TASK = ZeroShot()


def dataset(folder: Path, classes: int, test: int) -> Labelled:
    return fakes.opened(fakes.labelled(folder, classes=classes, test=test), Labelled)


def random_features(data: Labelled, count: int, seed: int) -> Features:
    images, prompts = TASK.requests(data)
    text = fakes.embeddings(2 * len(data.classnames), 1000 + seed)
    return {images: fakes.embeddings(count, seed), prompts: text}


def test_images_equal_to_their_class_embedding_are_all_correct(tmp_path: Path) -> None:
    data = dataset(tmp_path, classes=4, test=20)
    images, prompts = TASK.requests(data)
    text = fakes.embeddings(8, 1)
    features = {images: classifier(text, 4)[data.labels("test")], prompts: text}
    score = TASK.score(data, features)
    assert {row.metric: row.value for row in score.results} == {"top1": 1.0, "mean_per_class": 1.0}
    assert score.artifact is not None
    assert score.artifact["cells"] == [[c, c, 5] for c in range(4)]


def test_the_first_of_two_classes_with_equal_names_is_credited() -> None:
    text = fakes.embeddings(3, 1)
    prompts = torch.cat([text, text[1:2]])  # classes 1 and 3 have one name
    scores = class_scores(prompts, prompts, ["a", "b", "c", "b"])
    assert scores.argmax(dim=1).tolist() == [0, 1, 2, 1]
    assert label_ranks(scores, torch.arange(4)).tolist() == [1, 1, 1, 2]


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_ties_and_nan_count_against_the_model_in_every_metric_and_in_the_confusions(
    value: float, tmp_path: Path
) -> None:
    data = datacomps("iwildcam", tmp_path, test=24, groups=0)
    images, prompts = TASK.requests(data)
    collapsed = {images: torch.full((24, 4), value), prompts: torch.ones(2 * len(data.classnames), 4)}
    score = TASK.score(data, collapsed)
    values = {row.metric: row.value for row in score.results}
    assert values["top1"] == values["mean_per_class"] == values["macro_f1"] == 0
    assert score.artifact is not None
    assert score.artifact["cells"] and all(true != predicted for true, predicted, _ in score.artifact["cells"])


def test_confusions_are_the_counts_that_are_not_0() -> None:
    artifact = confusion(torch.tensor([0, 5, 7, 7]), torch.tensor([0, 0, 7, 8]), [*"abcdefghi"])
    assert artifact["cells"] == [[0, 0, 1], [0, 5, 1], [7, 7, 1], [8, 7, 1]]


def datacomps(name: str, folder: Path, test: int, groups: int) -> Labelled:
    fakes.labelled(folder / NAMED[name].place, classes=8, test=test, groups=groups)
    return fakes.opened(f"{name}:{folder}", Labelled)


def scores_of(data: Labelled, features: Features) -> Tensor:
    images, prompts = TASK.requests(data)
    return features[images] @ classifier(features[prompts], len(data.classnames)).T


def test_macro_f1_is_scikit_learns_over_the_classes_that_occur(tmp_path: Path) -> None:
    """DataComp scores iWildCam with WILDS, which averages scikit-learn's f1_score over the classes that occur."""
    data = datacomps("iwildcam", tmp_path, test=300, groups=0)
    data._split("test").label[data.labels("test") == 5] = 2  # class 5 can be predicted but does not occur
    values = []
    for seed in range(20):
        features = random_features(data, 300, seed)
        one = next(row for row in TASK.score(data, features).results if row.metric == "macro_f1")
        label, predicted = data.labels("test").numpy(), scores_of(data, features).argmax(dim=1).numpy()
        expected = f1_score(label, predicted, average="macro", labels=np.unique(label))
        assert one.value == pytest.approx(expected) and one.low < one.value < one.high and one.n == 300
        values.append(one.value)
    assert np.mean(values) == pytest.approx(1 / 8, abs=0.02)  # chance: precision and recall of a class are near 1/8


@pytest.mark.parametrize(("name", "k"), [("fmow", 1), ("dollar_street", 5)])
def test_the_worst_group_is_the_lowest_accuracy_of_a_group(name: str, k: int, tmp_path: Path) -> None:
    """The mean score of random embeddings is the expected minimum of six binomial shares."""
    data = datacomps(name, tmp_path, test=480, groups=6)
    group, values = data.groups("test"), []
    assert group is not None and group.bincount().tolist() == [80] * 6
    for seed in range(20):
        features = random_features(data, 480, seed)
        nearest = scores_of(data, features).topk(k, dim=1).indices.tolist()
        right = [c in top for c, top in zip(data.labels("test").tolist(), nearest, strict=True)]
        shares = [np.mean([r for r, g in zip(right, group.tolist(), strict=True) if g == one]) for one in range(6)]
        row = TASK.score(data, features).results[-1]
        assert (row.metric, row.n) == (f"worst_group_top{k}", 80) and row.low <= row.value <= row.high
        assert row.value == pytest.approx(min(shares))
        values.append(row.value)
    drawn = np.random.default_rng(0).binomial(80, k / 8, (10_000, 6)).min(axis=1).mean() / 80
    assert np.mean(values) == pytest.approx(drawn, abs=0.03)
