"""Parts of CIFAR-10, Tiny-ImageNet, Flickr8k, CLEVR and COCO in their published layouts are read and scored."""

import json
from pathlib import Path

import pytest

from evaluation.datasets.kinds import Captioned, Labelled
from evaluation.embedding.features import Loading
from evaluation.runner import evaluate
from tests.helpers import fakes

pytestmark = pytest.mark.real_data


def test_the_part_of_cifar10_has_the_expected_sizes_and_labels(real_data: Path) -> None:
    data = fakes.opened(f"wds:{real_data}/wds_cifar10", Labelled)
    assert data.classnames[0] == "airplane" and len(data.classnames) == 10
    for split, count in (("train", 10_000), ("test", 5_000)):
        label = data.labels(split)
        assert len(label) == len(data.images(split)) == count
        assert sorted(set(label.tolist())) == list(range(10))
    assert len(data.texts("test", "prompts")) == 10 * len(data.templates)
    assert data.images("test")[4_999].size == (32, 32)


@pytest.mark.long
def test_random_projections_beat_chance_only_in_the_linear_probe(real_data: Path, tmp_path: Path) -> None:
    specs = [f"wds:{real_data}/wds_cifar10", f"captions:{real_data}/flickr8k/test"]
    tasks = ["zeroshot", "linear_probe", "retrieval"]
    rows = evaluate(fakes.encoder(), specs, tasks, tmp_path / "out", Loading(256, 0, "cpu", tmp_path / "features"))
    by_metric = {(row.task, row.metric): row for row in rows}
    assert by_metric["linear_probe", "top1"].low > 0.15  # chance is 0.1; colours suffice to beat it
    assert by_metric["zeroshot", "top1"].value < 0.25
    assert by_metric["retrieval", "text_to_image_recall@10"].value < 0.03  # chance is 0.01


def test_clevr_labels_equal_the_object_counts_of_the_scenes(real_data: Path) -> None:
    data = fakes.opened(f"clevr:{real_data}/CLEVR_v1.0", Labelled)
    assert (data.short, data.splits, len(data.images("test"))) == ("clevr_count", ("test",), 10)
    text = (real_data / "CLEVR_v1.0" / "scenes" / "CLEVR_val_scenes.json").read_text()
    count_of = {scene["image_filename"]: len(scene["objects"]) for scene in json.loads(text)["scenes"]}
    names = [path.name for path in data.images("test").paths]  # type: ignore[attr-defined]
    assert [label + 3 for label in data.labels("test").tolist()] == [count_of[name] for name in names]


def test_coco_captions_belong_to_their_images(real_data: Path) -> None:
    data = fakes.opened(f"coco:{real_data}/coco/annotations/captions_train2017.json", Captioned)
    assert (data.short, data.splits, len(data.images("train2017"))) == ("coco/train2017", ("train2017",), 80)
    assert set(data.image_of_caption("train2017").bincount().tolist()) == {5}
    index = [path.name for path in data.images("train2017").paths].index("000000322517.jpg")  # type: ignore[attr-defined]
    texts = data.texts("train2017", "captions")[5 * index : 5 * index + 5]
    assert "People sitting down to a dinner with candles lit." in texts
