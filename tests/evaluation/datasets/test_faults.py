"""Faults in evaluation sets with published layouts: each raises a one-line error that names the fault."""

import json
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from clip_benchmark.datasets import builder

from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.composition import CHANGES, PIECES
from evaluation.datasets.files import ArrayImages
from evaluation.datasets.kinds import Labelled, Split
from evaluation.datasets.labelled import IMAGENETV2
from evaluation.types import Settings
from tests.helpers import replicas
from tests.helpers.layout_faults import edit, error_of

IDS = list(builder.all_imagenet_wordnet_ids)
SCENES = "clevr/CLEVR_v1.0/scenes/CLEVR_val_scenes.json"
FLICKR, FLICKR_IMAGES = "flickr8k/dataset_flickr8k.json", "flickr8k/Images"
COCO = "annotations/captions_val2017.json"
QUESTIONS = "MMVP_VLM/Questions.csv"
PETS = "oxford-iiit-pet/annotations/test.txt"
AIRCRAFT = "fgvc-aircraft-2013b/data/images_variant_test.txt"
SWAP = "sugar_crepe/swap_att.json"
EXAMPLES = "winoground/data/examples.jsonl"
RELATION, ATTRIBUTION = "aro/visual_genome_relation.json", "aro/visual_genome_attribution.json"
PHOTOS = "whatsup/controlled_images_dataset.json"
CUES = "winogavil/winogavil_dataset.csv"
KOREAN = "XTD10/test_1kcaptions_ko.txt"


def coco(root: Path) -> None:
    replicas.write(root / "val2017" / "1.jpg", replicas.jpeg(1))
    entries = {"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"image_id": 1, "caption": "a"}]}
    replicas.write(root / COCO, json.dumps(entries))


def aro(root: Path) -> None:
    replicas.aro(root, ["riding", "near"], [("red", "tall")] * 2)


# specification, with ROOT for the folder -> writes the set
SETS: dict[str, Callable[[Path], object]] = {
    "clevr:ROOT/clevr/CLEVR_v1.0": lambda root: replicas.clevr(root, {"val": [3, 10]}),
    f"karpathy:ROOT/{FLICKR}": lambda root: replicas.karpathy(root, "flickr8k", "Images", [5, 5]),
    f"coco:ROOT/{COCO}": coco,
    "mmvp:ROOT": lambda root: replicas.mmvp(root, ["Color", "Count"]),
    "pets:ROOT": replicas.pets,
    "aircraft:ROOT": replicas.aircraft,
    "sugar_crepe:ROOT": lambda root: replicas.sugar_crepe(root, dict.fromkeys(CHANGES, 2)),
    "winoground:ROOT": lambda root: replicas.winoground(root, ["Object", "Relation"]),
    "valse:ROOT": lambda root: replicas.valse(root, PIECES, [3, 2]),
    "whatsup_a:ROOT": lambda root: replicas.whatsup(root, ["cap", "mug"], "a"),
    "imagenet_r:ROOT": lambda root: replicas.class_folders(root / "imagenet-r", IDS[:200]),
    "aro_relation:ROOT": aro,
    "aro_attribution:ROOT": aro,
    "winogavil:ROOT": lambda root: replicas.winogavil(root, [(5, 2), (12, 3)]),
    f"xtd10:ROOT/xtd10/{KOREAN}": lambda root: replicas.xtd10(root, {KOREAN: ["개", "소", "고양이"]}),
}
# specification -> (file, text to replace, new text, part of the message); text None: the new text is the whole file,
# or without a new text the file is missing
FAULTS: dict[str, list[tuple[str, str | None, str | None, str]]] = {
    "clevr:ROOT/clevr/CLEVR_v1.0": [
        (SCENES, None, None, "expected the folder CLEVR_v1.0"),
        (SCENES, None, "{", "CLEVR_val_scenes.json is corrupt"),
        (SCENES, None, '{"info": 1}', 'has no list "scenes"'),
        (SCENES, "objects", "things", 'number 0 has no "objects" (list)'),
        (SCENES, "CLEVR_val_000001", "CLEVR_val_000009", "no scene for CLEVR_val_000001.png"),
        ("clevr/CLEVR_v1.0/images/val/CLEVR_val_000001.png", None, None, "CLEVR_val_000001.png is missing"),
    ],
    f"karpathy:ROOT/{FLICKR}": [
        (FLICKR, '"test"', '"val"', "has no test split; it has train, val"),
        (FLICKR, '"raw"', '"text"', 'has no "raw" (str)'),
        (f"{FLICKR_IMAGES}/000000000001.jpg", None, None, "no image 0000"),
        (f"{FLICKR_IMAGES}/000000000002.jpg", None, None, "000000000002.jpg is missing"),
        (f"{FLICKR_IMAGES}/000000000002.jpg", None, "x", "corrupt image"),
        (FLICKR, '"000000000002.jpg"', '"../000000000002.jpg"', "../000000000002.jpg is outside ROOT"),
    ],
    f"coco:ROOT/{COCO}": [
        (COCO, '"image_id": 1', '"image_id": 7', 'a caption belongs to image 7, which "images" lacks'),
        (COCO, '"caption": "a"', '"caption": " "', "no sample has a caption"),
        (COCO, '"image_id": 1', '"image_id": "1"', 'has no "image_id" (int)'),
        (COCO, '"1.jpg"', '"../1.jpg"', "../1.jpg is outside ROOT/val2017, not read"),
    ],
    "mmvp:ROOT": [
        (QUESTIONS, "Question ID,Type,Statement", "ID,Type,Statement", "no column 'Question ID'"),
        (QUESTIONS, "\n2,Color", "\n2,Count", "question 1 has no partner 2 of its type"),
        (QUESTIONS, "\n2,Color", "\n6,Color", "question 1 has no partner 2 of its type"),
        (QUESTIONS, "\n2,Color", "\n1,Color", "question 1 twice"),
        (QUESTIONS, "\n2,Color", "\ntwo,Color", "row 3 has no id, type or statement"),
    ],
    "pets:ROOT": [(PETS, " 37 1 1", " 38 1 1", "test labels are 0..37, but there are 37 class names")],
    "aircraft:ROOT": [(AIRCRAFT, "Yak-42", "Yak-43", "does not hold aircraft as published")],
    "sugar_crepe:ROOT": [
        (SWAP, None, "[1]", "swap_att.json is corrupt"),
        (SWAP, "negative_caption", "x", 'entry 0 has no "negative_caption"'),
        (SWAP, None, '{"7": 3}', 'swap_att.json: entry 7 has no "filename"'),
    ],
    "winoground:ROOT": [
        (EXAMPLES, None, "", "examples.jsonl has no examples"),
        (EXAMPLES, None, "{", "examples.jsonl: line 1 is not JSON"),
    ],
    "valse:ROOT": [("valse/data/plurals.json", "mturk", "x", 'entry plurals_0 has no number "caption" in "mturk"')],
    "whatsup_a:ROOT": [
        (PHOTOS, "caption_options", "x", 'entry 0 needs a list "caption_options" of four texts'),
        (PHOTOS, "images/mug_on", "images/mug_by", "mug and table show by, left, right, under; a set has left, on,"),
    ],
    "imagenet_r:ROOT": [(f"imagenet-r/{IDS[5]}/0.jpeg", None, None, f"{IDS[5]} holds no images")],
    "aro_relation:ROOT": [(RELATION, '"bbox_h": 4', '"bbox_h": "4"', "entry 0 has no box")],
    "aro_attribution:ROOT": [(ATTRIBUTION, '"red", ', "", 'entry 0 needs a list "attributes" of two')],
    "winogavil:ROOT": [
        (CUES, "associations", "x", "has no column 'associations'"),
        (CUES, "Eagle", "", "row 2 needs a cue, a list of candidates"),
        (CUES, "[", "", "row 2 needs a cue, a list of candidates"),
    ],
    f"xtd10:ROOT/xtd10/{KOREAN}": [
        (f"xtd10/{KOREAN}", "소\n", "", "has 2 captions, test_image_names.txt has 3 images"),
        (f"xtd10/{KOREAN}", "소", " ", "ko.txt has no caption of COCO_train2014_000000000001.jpg"),
    ],
}


@pytest.mark.parametrize(("spec", "fault"), [(spec, fault) for spec, faults in FAULTS.items() for fault in faults])
def test_a_faulty_file_is_named(tmp_path: Path, spec: str, fault: tuple[str, str | None, str | None, str]) -> None:
    SETS[spec](tmp_path)
    file, old, new, part = fault
    if old is not None:
        edit(tmp_path / file, old, str(new))
    elif new is not None:
        (tmp_path / file).write_text(new)
    else:
        (tmp_path / file).unlink()
    assert part.replace("ROOT", str(tmp_path)) in error_of(spec.replace("ROOT", str(tmp_path)))


# specification -> writes a set that is not complete or of another size, and part of the message
WRONG_SETS: dict[str, tuple[Callable[[Path], object], str]] = {
    "clevr:ROOT/clevr/CLEVR_v1.0": (
        lambda root: replicas.clevr(root, {"val": [3, 11]}),
        "CLEVR_val_000001.png has 11 objects, allowed 3..10",
    ),
    f"coco:ROOT/{COCO}": (
        lambda root: replicas.write(root / COCO, '{"images": [], "annotations": []}'),
        "no image folder ROOT/val2017",
    ),
    "imagenet:ROOT": (
        lambda root: replicas.write(root / "imagenet/val/n01440764/1.JPEG", replicas.jpeg(0)),
        "holds 1 class folders, but there are 1000 class names",
    ),
    "imagenetv2:ROOT": (
        lambda root: replicas.class_folders(root / IMAGENETV2, ["0", "1000"]),
        "1000: the name must be a class index in 0..999",
    ),
    "countbench:ROOT": (
        lambda root: replicas.countbench(root, [], faulty=True),
        "has no image with a caption that names its number",
    ),
    "imagenet_r:ROOT": (
        lambda root: replicas.class_folders(root / "imagenet-r", [*IDS[:199], "n99999999"]),
        "n99999999: the name must be the WordNet id of one of ImageNet's classes",
    ),
}


@pytest.mark.parametrize("spec", WRONG_SETS)
def test_what_a_set_lacks_or_has_too_much_is_named(tmp_path: Path, spec: str) -> None:
    write, part = WRONG_SETS[spec]
    write(tmp_path)
    assert part.replace("ROOT", str(tmp_path)) in error_of(spec.replace("ROOT", str(tmp_path)))


def test_a_missing_column_or_caption_of_the_order_sets_is_named(tmp_path: Path) -> None:
    folder = replicas.aro_order(tmp_path, 3)
    file = str(next((folder / "data").iterdir()))
    rows = datasets.Dataset.from_parquet(file)
    rows.remove_columns("hard_text_3").to_parquet(file)
    assert "has no column 'hard_text_3'" in error_of(f"aro_coco_order:{tmp_path}")
    rows.map(lambda row, i: row | {"hard_text_3": "" if i == 2 else "x"}, with_indices=True).to_parquet(file)
    assert f"row 2 of {folder} lacks a caption" in error_of(f"aro_coco_order:{tmp_path}")


def test_a_changed_cifar_is_refused_because_of_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        replicas.cifar(tmp_path, 10, patched)
    assert "does not hold cifar10 as published (Dataset not found or corrupted.)" in error_of(f"cifar10:{tmp_path}")


def test_the_error_for_an_unreachable_hub_has_the_download_command(no_hub: None) -> None:
    assert "run `hf download me/wds_x --repo-type dataset`" in error_of("hf:me/wds_x")


def test_a_missing_folder_is_no_repository_of_the_hub() -> None:
    assert error_of("hf:/nowhere/at/all") == "datasets=hf:/nowhere/at/all: no folder /nowhere/at/all"


def test_an_empty_split_is_refused() -> None:
    empty = Split(ArrayImages(np.zeros((0, 1, 1, 3), dtype=np.uint8)), torch.zeros(0, dtype=torch.int64))
    data = Labelled("made:up", "up", ["a"], prompts.Templates(["{c}"], ["{c}"]), {"test": lambda: empty}, Settings())
    with pytest.raises(UserError, match="its test split holds no images"):
        data.labels("test")
