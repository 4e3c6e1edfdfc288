"""Faults in data sets with published layouts: each raises a one-line error that names the fault."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.files import ArrayImages
from evaluation.datasets.kinds import Labelled, Split
from evaluation.types import Settings
from tests.helpers import fakes, replicas
from tests.helpers.layout_faults import edit, error_of

Break = Callable[[Path], object]


def clevr(root: Path) -> str:
    return f"clevr:{replicas.clevr(root, {'val': [3, 10]})}"


SCENES = "clevr/CLEVR_v1.0/scenes/CLEVR_val_scenes.json"


@pytest.mark.parametrize(
    ("breaks", "part"),
    [
        (lambda root: (root / SCENES).unlink(), "expected the folder CLEVR_v1.0"),
        (lambda root: (root / SCENES).write_text("{"), "CLEVR_val_scenes.json is corrupt"),
        (lambda root: (root / SCENES).write_text('{"info": 1}'), 'has no list "scenes"'),
        (lambda root: edit(root / SCENES, "objects", "things"), 'number 0 has no "objects" (list)'),
        (lambda root: edit(root / SCENES, "CLEVR_val_000001", "CLEVR_val_000009"), "no scene for CLEVR_val_000001.png"),
    ],
)
def test_faults_in_clevrs_files_are_named(tmp_path: Path, breaks: Break, part: str) -> None:
    spec = clevr(tmp_path)
    breaks(tmp_path)
    assert part in error_of(spec)


def test_an_image_with_too_many_objects_is_named(tmp_path: Path) -> None:
    folder = replicas.clevr(tmp_path, {"val": [3, 11]})
    assert "CLEVR_val_000001.png has 11 objects, allowed 3..10" in error_of(f"clevr:{folder}")


@pytest.mark.parametrize(
    ("breaks", "part"),
    [
        (lambda path: path.unlink(), "dataset_flickr8k.json is missing; it should hold Karpathy's splits"),
        (lambda path: edit(path, '"test"', '"val"'), "has no test split; it has train, val"),
        (lambda path: edit(path, '"raw"', '"text"'), 'has no "raw" (str)'),
        (lambda path: (path.parent / "Images" / "000000000001.jpg").rename(path.parent / "x.jpg"), "no image 0000"),
        (lambda path: (path.parent / "Images" / "000000000002.jpg").unlink(), "000000000002.jpg is missing"),
        (lambda path: (path.parent / "Images" / "000000000002.jpg").write_bytes(b"x"), "corrupt image"),
    ],
)
def test_faults_in_karpathys_files_are_named(tmp_path: Path, breaks: Break, part: str) -> None:
    path = replicas.karpathy(tmp_path, "flickr8k", "Images", [5, 5])
    breaks(path)
    assert part in error_of(f"karpathy:{path}")


@pytest.mark.parametrize(
    ("annotations", "part"),
    [
        ([{"image_id": 7, "caption": "a"}], 'a caption belongs to image 7, which "images" lacks'),
        ([{"image_id": 1, "caption": " "}], "no sample has a caption"),
        ([{"image_id": "1", "caption": "a"}], 'has no "image_id" (int)'),
    ],
)
def test_faults_in_cocos_annotations_are_named(tmp_path: Path, annotations: list[object], part: str) -> None:
    replicas.write(tmp_path / "val2017" / "1.jpg", replicas.jpeg(1))
    path = tmp_path / "annotations" / "captions_val2017.json"
    replicas.write(path, json.dumps({"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": annotations}))
    assert part in error_of(f"coco:{path}")


def test_a_missing_image_folder_of_coco_is_named(tmp_path: Path) -> None:
    replicas.write(tmp_path / "annotations" / "captions_val2017.json", '{"images": [], "annotations": []}')
    spec = f"coco:{tmp_path / 'annotations' / 'captions_val2017.json'}"
    assert f"no image folder {tmp_path / 'val2017'}" in error_of(spec)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("Question ID,Type,Statement", "ID,Type,Statement", "no column 'Question ID'"),
        ("\n2,Color", "\n2,Count", "questions 1 and 2 have different types"),
        ("\n2,Color", "\n6,Color", "question 1 has no partner 2"),
        ("\n1,Color", "\n8,Color", "question 2 has no partner 1"),
        ("\n2,Color", "\n1,Color", "question 1 twice"),
        ("\n2,Color", "\ntwo,Color", "row 3 has no id, type or statement"),
        ("Color", "Colour", "1.jpg is missing"),
    ],
)
def test_faults_in_mmvps_questions_are_named(tmp_path: Path, old: str, new: str, part: str) -> None:
    folder = replicas.mmvp(tmp_path, ["Color", "Count"])
    edit(folder / "Questions.csv", old, new)
    assert part in error_of(f"mmvp:{tmp_path}")


def test_a_wrong_number_of_class_folders_is_named(tmp_path: Path) -> None:
    replicas.write(tmp_path / "imagenet" / "val" / "n01440764" / "1.JPEG", replicas.jpeg(0))
    assert "holds 1 class folders, but there are 1000 class names" in error_of(f"imagenet:{tmp_path}")


def test_a_folder_whose_name_is_not_a_class_index_is_named(tmp_path: Path) -> None:
    replicas.imagenetv2(tmp_path, [0, 1000])
    assert "1000: the name must be a class index in 0..999" in error_of(f"imagenetv2:{tmp_path}")


def test_labels_without_a_class_name_are_refused(tmp_path: Path) -> None:
    replicas.pets(tmp_path)
    edit(tmp_path / "oxford-iiit-pet" / "annotations" / "test.txt", " 37 1 1", " 38 1 1")
    assert "test labels are 0..37, but there are 37 class names" in error_of(f"pets:{tmp_path}")


def test_a_set_that_torchvision_cannot_read_gives_one_line(tmp_path: Path) -> None:
    replicas.aircraft(tmp_path)
    edit(tmp_path / "fgvc-aircraft-2013b" / "data" / "images_variant_test.txt", "Yak-42", "Yak-43")
    assert "does not hold aircraft as published" in error_of(f"aircraft:{tmp_path}")


def test_a_changed_cifar_is_refused_because_of_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        replicas.cifar(tmp_path, 10, patched)
    assert "does not hold cifar10 as published (Dataset not found or corrupted.)" in error_of(f"cifar10:{tmp_path}")


def test_the_error_for_an_unreachable_hub_has_the_download_command(no_hub: None) -> None:
    assert "run `hf download me/wds_x --repo-type dataset`" in error_of("hf:me/wds_x")


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (Settings(prompts="seven"), "prompts=seven is not known; allowed: ensemble, simple, or your own prompt"),
        (Settings(prompts=""), "prompts= is not known"),
        (Settings(protocol="papers"), "protocol=papers is not known; did you mean 'paper'"),
    ],
)
def test_unknown_prompts_and_protocols_are_named(tmp_path: Path, settings: Settings, part: str) -> None:
    assert part in error_of(fakes.labelled(tmp_path), settings)


@pytest.mark.parametrize(
    ("names", "templates", "part"),
    [([], ["a {c}"], "has no class name"), (["a"], [], "has no prompt template"), (["a"], ["x"], "lacks {c}")],
)
def test_empty_prompt_lists_are_refused(names: list[str], templates: list[str], part: str) -> None:
    with pytest.raises(UserError, match=part):
        Labelled("made:up", "up", names, prompts.Templates(templates, templates), {}, Settings())


def test_an_empty_split_is_refused() -> None:
    empty = Split(ArrayImages(np.zeros((0, 1, 1, 3), dtype=np.uint8)), torch.zeros(0, dtype=torch.int64))
    data = Labelled("made:up", "up", ["a"], prompts.Templates(["{c}"], ["{c}"]), {"test": lambda: empty}, Settings())
    with pytest.raises(UserError, match="its test split holds no images"):
        data.labels("test")
