"""Composition sets and ImageNet's variants agree with CLIP-benchmark, or with their files as others read them."""

import json
from pathlib import Path

import datasets
import numpy as np
import pytest
from clip_benchmark.datasets import builder, sugar_crepe
from PIL import Image

from evaluation.datasets import prompts
from evaluation.datasets.composition import CHANGES, PIECES
from evaluation.datasets.kinds import Associations, Choices, Labelled, MinimalPairs
from evaluation.datasets.opening import open_dataset
from evaluation.types import Settings
from tests.helpers import fakes, replicas
from tests.helpers.layout_faults import edit

DEPTH = ("in-front", "behind")
COUNTS = dict.fromkeys(CHANGES, 2) | {"swap_att": 3}
IDS = list(builder.all_imagenet_wordnet_ids)
RELATIONS = ["riding", "near", "riding", "above"]
ATTRIBUTES = [("red", "tall")] * 25 + [("old", "wet")] * 24


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


def test_sugar_crepe_pp_has_two_right_captions_and_a_wrong_one(tmp_path: Path) -> None:
    folder = replicas.sugar_crepe(tmp_path, dict.fromkeys(CHANGES[2:], 2), plus=True)
    data = open_dataset(f"sugar_crepe_pp:{tmp_path}")
    assert isinstance(data, Choices) and (data.answers, data.right, data.short) == (3, 2, "sugar_crepe_pp")
    entries = [one for kind in CHANGES[2:] for one in json.loads((folder / "data" / f"{kind}.json").read_text())]
    expected = [one[field] for one in entries for field in ("caption", "caption2", "negative_caption")]
    assert data.texts("test", "captions") == expected and len(data.images("test")) == 10


def test_valse_keeps_what_two_of_three_annotators_confirmed(tmp_path: Path) -> None:
    folder = replicas.valse(tmp_path, PIECES, [3, 1, 2, 0])
    data = open_dataset(f"valse:{tmp_path}")
    assert isinstance(data, Choices) and data.averaged == set(PIECES) and data.by_category
    entries = [one for piece in PIECES for one in json.loads((folder / "data" / f"{piece}.json").read_text()).values()]
    valid = [one for one in entries if one["mturk"]["caption"] >= 2]
    assert data.texts("test", "captions") == [text for one in valid for text in (one["caption"], one["foil"])]
    assert data.categories("test") == [piece for piece in PIECES for _ in range(2)]
    assert [Path(path).name for path in data.images("test").paths] == [one["image_file"] for one in valid]  # type: ignore[attr-defined]


@pytest.mark.parametrize("subset", ["a", "b"])
def test_the_images_of_a_set_of_whatsup_are_together_in_pairs_also_under_a_limit(subset: str, tmp_path: Path) -> None:
    file = replicas.whatsup(tmp_path, ["cap", "mug", "box"], subset)
    listed = {Path(one["image_path"]).name: one["caption_options"] for one in json.loads(file.read_text())}
    for limit in (None, 2):
        data = open_dataset(f"whatsup_{subset}:{tmp_path}", Settings(limit=limit))
        assert isinstance(data, Choices) and dict(data.groups) == {"pair_accuracy": 2, "set_accuracy": 4}
        names = [Path(path).name for path in data.images("test").paths]  # type: ignore[attr-defined]
        assert len(names) == 4 * (limit or 3)
        assert data.texts("test", "captions") == [text for name in names for text in listed[name]]
        assert all(len({name.split("_")[0] for name in names[i : i + 4]}) == 1 for i in range(0, len(names), 4))
        assert [name.split("_")[1] for name in names] == data.categories("test")
        pairs = {frozenset(data.categories("test")[i : i + 2]) for i in range(0, len(names), 2)}
        assert pairs == {frozenset(("left", "right")), frozenset(("on", "under") if subset == "a" else DEPTH)}


def test_colorswap_is_read_as_the_datasets_library_reads_it(tmp_path: Path) -> None:
    folder = replicas.colorswap(tmp_path, 3)
    data = open_dataset(f"colorswap:{tmp_path}")
    assert isinstance(data, MinimalPairs) and data.both_ways
    assert isinstance(data.images("test").sets[1].source.rows[0]["image_1"], dict)  # type: ignore[attr-defined]  # not decoded
    rows = datasets.load_dataset(str(folder), split="test")
    assert data.categories("test") == rows["image_source"][:] == ["dalle", "midjourney", "dalle"]
    for i, row in enumerate(rows):
        for k in (0, 1):
            assert data.texts("test", "captions")[2 * i + k] == row[f"caption_{k + 1}"]
            np.testing.assert_array_equal(np.asarray(data.images("test")[2 * i + k]), np.asarray(row[f"image_{k + 1}"]))


def test_winoground_has_its_pairs_and_categories_in_the_order_of_the_file(tmp_path: Path) -> None:
    replicas.winoground(tmp_path, ["Object", "Relation", "Both"])
    data = open_dataset(f"winoground:{tmp_path}")
    assert isinstance(data, MinimalPairs) and data.both_ways
    assert data.categories("test") == ["Object", "Relation", "Both"]
    assert data.texts("test", "captions")[2:4] == ["some 1 in a box", "a box in some 1"]
    assert np.asarray(data.images("test")[3])[0, 0].tolist() == [1, 100, 0]


def test_a_variant_has_only_the_classes_of_its_folders(tmp_path: Path) -> None:
    """As in CLIP-benchmark, class names are in the order of ImageNet's labels."""
    ids = [*sorted(IDS[7:1000:5])[:198], IDS[0], IDS[999]]
    folder = tmp_path / "imagenet-r"
    replicas.class_folders(folder, ids[::-1])
    data = fakes.opened(f"imagenet_r:{tmp_path}", Labelled)
    names = prompts.classnames("imagenet1k")
    kept = [label for label, one in enumerate(IDS) if one in set(ids)]
    assert data.classnames == [names[label] for label in kept] and len(data.templates) == 80
    labels = data.labels("test").tolist()
    paths = data.images("test").paths  # type: ignore[attr-defined]
    assert [IDS[kept[label]] for label in labels] == [Path(path).parent.name for path in paths]
    assert {Path(path).parent.parent for path in paths} == {folder}


def choices(name: str, root: Path) -> Choices:
    opened = open_dataset(f"{name}:{root}")
    assert isinstance(opened, Choices) and opened.short == name
    return opened


def test_visual_genomes_images_are_cropped_to_the_box(tmp_path: Path) -> None:
    folder = replicas.aro(tmp_path, RELATIONS, ATTRIBUTES)
    data = choices("aro_relation", tmp_path)
    assert data.answers == 2 and data.texts("test", "captions")[2:4] == ["right 1", "wrong 1"]
    assert data.categories("test") == RELATIONS
    with Image.open(folder / "images" / "relation1.jpg") as image:
        expected = np.asarray(image.convert("RGB"))[2:6, 1:6]
    np.testing.assert_array_equal(np.asarray(data.images("test")[1]), expected)
    edit(folder / "visual_genome_relation.json", '"bbox_w": 5', '"bbox_w": 4')
    other = choices("aro_relation", tmp_path)
    assert other.fingerprint("test", "images") != data.fingerprint("test", "images")


def test_the_mean_leaves_out_symmetric_relations_and_rare_pairs_of_attributes(tmp_path: Path) -> None:
    replicas.aro(tmp_path, RELATIONS, ATTRIBUTES)
    assert choices("aro_relation", tmp_path).averaged == frozenset({"riding", "above"})
    assert choices("aro_attribution", tmp_path).averaged == frozenset({"red_tall"})


def test_coco_order_is_read_like_the_datasets_library_reads_it(tmp_path: Path) -> None:
    folder = replicas.aro_order(tmp_path, 3)
    data = choices("aro_coco_order", tmp_path)
    assert data.answers == 5 and data.averaged == frozenset()
    captions = data.texts("test", "captions")
    for i, row in enumerate(datasets.load_dataset(str(folder), split="test")):
        negatives = [row[f"hard_text_{k}"] for k in range(1, 5)]
        assert captions[5 * i : 5 * i + 5] == [row["correct_caption"], *negatives]
        np.testing.assert_array_equal(np.asarray(data.images("test")[i]), np.asarray(row["images"]))


def test_winogavils_cues_have_their_candidates_and_datacomps_prompt(tmp_path: Path) -> None:
    replicas.winogavil(tmp_path, [(5, 2), (12, 3)])
    data = fakes.opened(f"winogavil:{tmp_path}", Associations)
    assert data.texts("test", "captions") == ["An eagle", "A tree"]
    colours = [np.asarray(image)[0, 0, 0] for image in data.images("test")]
    assert [[colours[i] for i in of_cue] for of_cue in data.candidates] == [[*range(5)], [*range(1, 12), 0]]
    assert data.right == [[3, 4], [9, 10, 11]]
    limited = open_dataset(f"winogavil:{tmp_path}", Settings(limit=1))
    assert len(limited.texts("test", "captions")) == 1 and len(limited.images("test")) in (5, 12)
