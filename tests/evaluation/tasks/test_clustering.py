"""The V-measure on shifted modalities and at chance; k-means of few places."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import v_measure_score
from torch import Tensor

from evaluation.datasets.kinds import AnyDataset
from evaluation.datasets.opening import open_dataset
from evaluation.tasks import TASKS
from evaluation.tasks.clustering import k_means
from evaluation.types import Result, Settings
from tests.helpers import fakes

CLASSES, SIDE = 4, 60


def test_k_means_of_fewer_places_than_clusters() -> None:
    points = torch.eye(3)[torch.tensor([0, 0, 1, 2, 2])]
    assert v_measure_score(torch.tensor([0, 0, 1, 2, 2]), k_means(points, 5, seed=0)) == 1


def score(task: str, data: AnyDataset, features: list[Tensor]) -> Result:
    (found,) = fakes.scored(TASKS[task], data, *features).results
    return found


@pytest.mark.parametrize("task", ["clustering", "caption_clustering"])
def test_a_gap_splits_the_groups_and_centring_joins_them(task: str, tmp_path: Path) -> None:
    """Each modality has its own offset, which is larger than the distance of the classes."""
    if task == "clustering":
        spec, settings = fakes.labelled(tmp_path / "x", CLASSES, test=SIDE), [Settings(), Settings(protocol="centred")]
        label = open_dataset(spec).labels("test")  # type: ignore[union-attr]
        of_text = torch.arange(CLASSES).repeat_interleave(len(open_dataset(spec).texts("test", "prompts")) // CLASSES)
    else:
        spec, settings = fakes.captioned(tmp_path / "x", (5,) * CLASSES), [Settings(), Settings(protocol="centred")]
        label, of_text = torch.arange(CLASSES), torch.arange(CLASSES).repeat_interleave(5)
    classes = torch.eye(8)[:CLASSES]
    offsets = 4 * torch.eye(8)[6:]
    image, text = (
        F.normalize(classes[of] + offset, dim=1) for of, offset in zip((label, of_text), offsets, strict=True)
    )
    raw, centred = (score(task, open_dataset(spec, one), [image, text]) for one in settings)
    assert centred.value == pytest.approx(1) and raw.value < 0.8
    assert centred.split.endswith(", centred protocol")
    closed = score(task, open_dataset(spec), [classes[label], classes[of_text]])
    assert closed.value == pytest.approx(1)


@pytest.mark.parametrize("task", ["clustering", "caption_clustering"])
def test_random_embeddings_are_at_chance(task: str, tmp_path: Path) -> None:
    """Compare the mean over 20 models, because the interval of one model shows only how the starts of k-means vary."""
    make = fakes.labelled(tmp_path / "x", CLASSES, test=SIDE)
    spec = make if task == "clustering" else fakes.captioned(tmp_path / "y", (5,) * 20)
    data = open_dataset(spec)
    texts = len(data.texts(data.splits[-1], "prompts" if task == "clustering" else "captions"))
    images = SIDE if task == "clustering" else 20
    differences = []
    for seed in range(20):
        features = [fakes.embeddings(images, 2 * seed), fakes.embeddings(texts, 2 * seed + 1)]
        found = score(task, data, features)
        assert found.chance is not None
        differences.append(found.value - found.chance)
    mean, error = torch.tensor(differences).mean(), torch.tensor(differences).std() / 20**0.5
    assert abs(mean) < 3.5 * error, (mean, error)
