"""CIFAR-10 in the CLIP-benchmark layout and Flickr8k as published, read and scored."""

import os
from pathlib import Path

import pytest

from evaluation.datasets import Captioned, Labelled, open_dataset
from evaluation.runner import evaluate
from tests.evaluation import fakes

DATA = os.environ.get("CLIPX_DATA", "")
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not DATA, reason="CLIPX_DATA is not set"),
]


def test_cifar10_has_its_sizes_and_labels() -> None:
    data = open_dataset(f"wds:{DATA}/wds_cifar10")
    assert isinstance(data, Labelled)
    assert data.classnames[0] == "airplane" and len(data.classnames) == 10
    for split, count in (("train", 10_000), ("test", 5_000)):
        label = data.labels(split)
        assert len(label) == len(data.images(split)) == count
        assert sorted(set(label.tolist())) == list(range(10))
    assert len(data.texts("test", "prompts")) == 10 * len(data.templates)
    assert data.images("test")[4_999].size == (32, 32)


def test_flickr8k_has_five_captions_an_image() -> None:
    data = open_dataset(f"captions:{DATA}/flickr8k/test")
    assert isinstance(data, Captioned)
    assert (data.short, len(data.images("test"))) == ("flickr8k/test", 1000)
    assert data.image_of_caption("test").bincount().tolist() == [5] * 1000


@pytest.mark.slow
def test_random_projections_of_photographs_are_read_by_a_probe_and_retrieve_near_chance(tmp_path: Path) -> None:
    specs = [f"wds:{DATA}/wds_cifar10", f"captions:{DATA}/flickr8k/test"]
    tasks = ["zeroshot", "linear_probe", "retrieval"]
    rows = evaluate(fakes.encoder(), specs, tasks, tmp_path / "out", tmp_path / "features", 256, 0, "cpu")
    value = {(row.task, row.metric): row for row in rows}
    assert value["linear_probe", "top1"].low > 0.15  # colours alone beat chance
    assert value["zeroshot", "top1"].value < 0.25
    assert value["retrieval", "text_to_image_recall@10"].value < 0.03
