"""Zero-shot: chance level, averaging of prompts by class, and the confusion matrix."""

from pathlib import Path

import torch
import torch.nn.functional as F

from evaluation.datasets.kinds import Labelled
from evaluation.datasets.opening import open_dataset
from evaluation.tasks.zeroshot import ZeroShot, classifier
from evaluation.types import Features
from tests.helpers import fakes

TASK = ZeroShot()


def dataset(folder: Path, classes: int, test: int) -> Labelled:
    opened = open_dataset(fakes.labelled(folder, classes=classes, test=test))
    assert isinstance(opened, Labelled)
    return opened


def random_features(data: Labelled, count: int, seed: int) -> Features:
    images, prompts = TASK.requests(data)
    text = fakes.embeddings(2 * len(data.classnames), 1000 + seed)
    return {images: fakes.embeddings(count, seed), prompts: text}


def test_random_embeddings_score_at_chance(tmp_path: Path) -> None:
    data = dataset(tmp_path, classes=8, test=480)
    covered = 0
    for seed in range(20):
        rows = TASK.score(data, random_features(data, 480, seed)).results
        assert [row.metric for row in rows] == ["top1", "top5", "mean_per_class"]
        assert [row.chance for row in rows] == [1 / 8, 5 / 8, 1 / 8]
        covered += sum(row.low <= float(row.chance or 0) <= row.high for row in rows)
    assert covered >= 51  # of 60 intervals (20 seeds, 3 metrics); 57 (95%) are expected to contain chance


def test_images_equal_to_their_class_embedding_are_all_correct(tmp_path: Path) -> None:
    data = dataset(tmp_path, classes=4, test=20)
    images, prompts = TASK.requests(data)
    text = fakes.embeddings(8, 1)
    features = {images: classifier(text, 4)[data.labels("test")], prompts: text}
    score = TASK.score(data, features)
    assert {row.metric: row.value for row in score.results} == {"top1": 1.0, "mean_per_class": 1.0}
    assert score.artifact is not None
    assert score.artifact["matrix"] == torch.diag(torch.full((4,), 5)).tolist()


def test_prompts_are_averaged_by_class_after_normalisation() -> None:
    prompts = fakes.embeddings(6, 0) * torch.tensor([1.0, 9.0, 1.0, 1.0, 5.0, 1.0])[:, None]
    unit = F.normalize(prompts, dim=1)
    expected = torch.stack([F.normalize(unit[a] + unit[a + 1], dim=0) for a in (0, 2, 4)])
    torch.testing.assert_close(classifier(prompts, 3), expected)


def test_the_confusion_matrix_has_true_classes_as_rows(tmp_path: Path) -> None:
    data = dataset(tmp_path, classes=3, test=12)
    images, prompts = TASK.requests(data)
    text = torch.eye(3).repeat_interleave(2, dim=0)
    features = {images: torch.eye(3)[torch.full((12,), 2)], prompts: text}  # class 2 is predicted for all
    artifact = TASK.score(data, features).artifact
    assert artifact is not None and artifact["matrix"] == [[0, 0, 4]] * 3
    assert artifact["classnames"] == ["thing 0", "thing 1", "thing 2"]
