"""ECCV Caption, ARO and WinoGAViL: replicas of their layouts are read completely."""

import json
from pathlib import Path

import datasets
import numpy as np
from PIL import Image

from evaluation.datasets.kinds import Associations, Choices, ManyToMany
from evaluation.datasets.opening import open_dataset
from evaluation.types import Settings
from tests.helpers import replicas
from tests.helpers.layout_faults import edit

RELATIONS = ["riding", "near", "riding", "above"]
ATTRIBUTES = [("red", "tall")] * 25 + [("old", "wet")] * 24
ECCV = "eccv_caption/eccv_image_to_caption.json"


def eccv(root: Path, settings: Settings | None = None) -> ManyToMany:
    opened = open_dataset(f"eccv_caption:{root}", settings or Settings())
    assert isinstance(opened, ManyToMany)
    return opened


def choices(name: str, root: Path, settings: Settings | None = None) -> Choices:
    opened = open_dataset(f"{name}:{root}", settings or Settings())
    assert isinstance(opened, Choices) and opened.short == name
    return opened


def ids_of(data: ManyToMany) -> tuple[list[int], list[int]]:
    """Return COCO's ids of the replica's images and of its captions."""
    split = data.splits[0]
    words = [caption.split() for caption in data.texts(split, "captions")]
    owner = data.image_of_caption(split).tolist()
    image_of = {at: 100 + int(word[3]) for at, word in zip(owner, words, strict=True)}
    return [image_of[i] for i in range(len(image_of))], [10 * int(word[3]) + int(word[1]) for word in words]


def test_positives_are_those_of_eccv_captions_files(tmp_path: Path) -> None:
    folder = replicas.eccv_caption(tmp_path, images=4)
    data = eccv(tmp_path)
    images, captions = ids_of(data)
    assert (len(images), len(captions)) == (4, 20)
    for source in ("eccv", "cxc"):
        for file, direction, queries, answers in (
            ("image_to_caption", "image_to_text", images, captions),
            ("caption_to_image", "text_to_image", captions, images),
        ):
            found = {
                queries[query]: [answers[a] if a >= 0 else 9999 for a in right]
                for query, right in data.positives("test")[source][direction].items()
            }
            expected = json.loads((folder / f"{source}_{file}.json").read_text())
            assert found == {int(query): right for query, right in expected.items()}


def test_a_limit_keeps_only_positives_among_the_drawn_images(tmp_path: Path) -> None:
    replicas.eccv_caption(tmp_path, images=9)
    whole, limited = eccv(tmp_path), eccv(tmp_path, Settings(limit=4))
    images, captions = ids_of(limited)
    all_images, all_captions = ids_of(whole)
    assert (len(images), len(captions)) == (4, 20)
    for source, directions in limited.positives("test").items():
        for query, right in directions["image_to_text"].items():
            of_query = whole.positives("test")[source]["image_to_text"][all_images.index(images[query])]
            known = [all_captions[a] for a in of_query if a >= 0]
            assert [captions[a] for a in right] == [one for one in known if one in captions]
    assert limited.hashes("test", "captions")["positives"] != whole.hashes("test", "captions")["positives"]


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
    data = open_dataset(f"winogavil:{tmp_path}")
    assert isinstance(data, Associations)
    assert data.texts("test", "captions") == ["An eagle", "A tree"]
    colours = [np.asarray(image)[0, 0, 0] for image in data.images("test")]
    assert [[colours[i] for i in of_cue] for of_cue in data.candidates] == [[*range(5)], [*range(1, 12), 0]]
    assert data.right == [[3, 4], [9, 10, 11]]
    limited = open_dataset(f"winogavil:{tmp_path}", Settings(limit=1))
    assert len(limited.texts("test", "captions")) == 1 and len(limited.images("test")) in (5, 12)
