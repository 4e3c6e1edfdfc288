"""SugarCrepe and ImageNet's variants agree with CLIP-benchmark, Winoground with its file."""

from pathlib import Path

import numpy as np
import pytest
from clip_benchmark.datasets import builder, sugar_crepe

from evaluation.datasets import prompts
from evaluation.datasets.composition import CHANGES
from evaluation.datasets.kinds import Choices, Labelled, MinimalPairs
from evaluation.datasets.opening import open_dataset
from evaluation.types import Settings
from tests.helpers import replicas

COUNTS = dict.fromkeys(CHANGES, 2) | {"swap_att": 3}
IDS = list(builder.all_imagenet_wordnet_ids)


def test_sugar_crepe_equals_the_set_that_clip_benchmark_reads(tmp_path: Path) -> None:
    folder = replicas.sugar_crepe(tmp_path, COUNTS)
    data = open_dataset(f"sugar_crepe:{tmp_path}")
    assert isinstance(data, Choices) and data.answers == 2
    images, captions, categories = data.images("test"), data.texts("test", "captions"), data.categories("test")
    number = 0
    for kind in CHANGES:
        reader = sugar_crepe.SugarCrepe(str(folder / "val2017"), str(folder / f"{kind}.json"))
        for image, texts in (reader[i] for i in range(len(reader))):
            np.testing.assert_array_equal(np.asarray(images[number]), np.asarray(image))
            assert (captions[2 * number : 2 * number + 2], categories[number]) == (texts, kind)
            number += 1
    assert number == len(images) == 15


def test_winoground_has_its_pairs_and_categories_in_the_order_of_the_file(tmp_path: Path) -> None:
    replicas.winoground(tmp_path, ["Object", "Relation", "Both"])
    data = open_dataset(f"winoground:{tmp_path}")
    assert isinstance(data, MinimalPairs) and data.both_ways
    assert data.categories("test") == ["Object", "Relation", "Both"]
    assert data.texts("test", "captions")[2:4] == ["some 1 in a box", "a box in some 1"]
    assert np.asarray(data.images("test")[3])[0, 0].tolist() == [1, 100, 0]


def test_a_limit_keeps_images_with_their_captions(tmp_path: Path) -> None:
    replicas.sugar_crepe(tmp_path, COUNTS)
    spec = f"sugar_crepe:{tmp_path}"
    limited, whole = open_dataset(spec, Settings(limit=4)), open_dataset(spec)
    assert isinstance(limited, Choices)
    captions = limited.texts("test", "captions")
    assert (len(limited.images("test")), len(captions), len(limited.categories("test"))) == (4, 8, 4)
    assert limited.fingerprint("test", "images") != whole.fingerprint("test", "images")
    assert all(kind in caption for kind, caption in zip(limited.categories("test"), captions[::2], strict=True))


@pytest.mark.parametrize(("name", "directory"), [("imagenet_a", "imagenet-a"), ("imagenet_r", "imagenet-r")])
def test_a_variant_has_only_the_classes_of_its_folders(name: str, directory: str, tmp_path: Path) -> None:
    """As in CLIP-benchmark, class names are in the order of ImageNet's labels."""
    ids = [*sorted(IDS[7:1000:5])[:198], IDS[0], IDS[999]]
    folder = replicas.imagenet_variant(tmp_path, directory, ids[::-1])
    data = open_dataset(f"{name}:{tmp_path}")
    assert isinstance(data, Labelled)
    names = prompts.classnames("imagenet1k")
    kept = [label for label, one in enumerate(IDS) if one in set(ids)]
    assert data.classnames == [names[label] for label in kept] and len(data.templates) == 80
    labels = data.labels("test").tolist()
    paths = data.images("test").paths  # type: ignore[attr-defined]
    assert [IDS[kept[label]] for label in labels] == [Path(path).parent.name for path in paths]
    assert {Path(path).parent.parent for path in paths} == {folder}
