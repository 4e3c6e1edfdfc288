"""Evaluation sets in shards: their content, and a one-line error for each fault of a specification or folder."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from clipx.config.schema import DataConfig
from clipx.errors import UserError
from evaluation.datasets.captioned import held_out_pairs
from evaluation.datasets.kinds import Captioned, Labelled, MinimalPairs, draw
from evaluation.datasets.opening import is_training_data, open_dataset, training_copies
from evaluation.types import Settings
from tests.helpers import fakes
from tests.helpers.layout_faults import error_of, forbid


def test_labels_prompts_and_images_are_in_the_order_of_the_files(tmp_path: Path) -> None:
    dataset = fakes.opened(fakes.labelled(tmp_path / "things", classes=3, train=6, test=9), Labelled)
    assert (dataset.short, dataset.splits) == ("things", ("test", "train"))
    assert dataset.labels("test").tolist() == [0, 1, 2] * 3
    assert dataset.texts("test", "prompts")[:3] == ["a photo of a thing 0.", "a thing 0", "a photo of a thing 1."]
    images = dataset.images("test")
    assert len(images) == 9 and images[0].size == (12, 12) and len(list(images)) == 9


def test_each_image_has_its_captions_of_json_or_else_of_txt(tmp_path: Path) -> None:
    samples = [{"png": fakes.picture(i), "txt": f"no {i}\n".encode(), "json": b'{"width": 12}'} for i in range(2)]
    samples.append({"png": fakes.picture(2), "json": json.dumps({"captions": ["a", "a dog \ud83d"]}).encode()})
    fakes.shard(tmp_path / "set" / "test" / "0.tar", samples)
    data = open_dataset(f"captions:{tmp_path}/set/test")
    assert isinstance(data, Captioned) and (data.short, data.splits) == ("set/test", ("test",))
    # half of a surrogate pair, which tokenizers refuse, becomes a question mark
    assert data.texts("test", "captions") == ["no 0", "no 1", "a", "a dog ?"]
    assert data.image_of_caption("test").tolist() == [0, 1, 2, 2]


def test_categories_of_pairs_come_from_json(tmp_path: Path) -> None:
    dataset = fakes.opened(fakes.pairs(tmp_path / "minimal", ("size", "colour", "size")), MinimalPairs)
    assert dataset.categories("all") == ["size", "colour", "size"]
    assert len(dataset.images("all")) == len(dataset.texts("all", "captions")) == 6


def test_the_fingerprint_depends_on_the_content_but_not_on_the_folder(tmp_path: Path) -> None:
    first, second = (open_dataset(fakes.captioned(tmp_path / name)) for name in "ab")
    other = open_dataset(fakes.captioned(tmp_path / "c", counts=(2, 5, 1, 4)))
    for view in ("images", "captions"):
        assert first.fingerprint("all", view) == second.fingerprint("all", view)
    assert first.fingerprint("all", "captions") != other.fingerprint("all", "captions")


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("cifr10", "did you mean 'cifar10'"),
        ("nothing", "LAYOUT:PLACE, such as folder:DIR"),
        ("wds:/nowhere/wds_cars", "`hf download clip-benchmark/wds_cars --repo-type dataset"),
        ("pairs:/nowhere/scenes_pairs", "`clipx train recipe=demo`"),
        ("captions:/nowhere/at/all", ".tar shards"),
    ],
)
def test_the_error_for_a_wrong_specification_shows_a_right_one(spec: str, part: str) -> None:
    assert part in error_of(spec)


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        *(
            (name, None, name)
            for name in ("classnames.txt", "zeroshot_classification_templates.txt", "test/nshards.txt")
        ),
        ("classnames.txt", "thing 0\nthing 1\n", "class '2', allowed 0..1, as classnames.txt has 2 names"),
        ("classnames.txt", "thing 0\n\nthing 2\n", "line 2"),
        ("zeroshot_classification_templates.txt", "\n", "is empty"),
        ("zeroshot_classification_templates.txt", "a photo of a {}.\n", "lacks {c}"),
        ("test/nshards.txt", "2\n", "1.tar is missing"),
        ("test/nshards.txt", "0\n", "0.tar is not expected"),
        ("test/nshards.txt", "one\n", "'one', but the folder has"),
        ("test/nshards.txt", "9" * 5000, "but the folder has 1 shards"),
        ("test/0.tar", "", "sample"),
    ],
)
def test_a_wrong_layout_file_is_explained(tmp_path: Path, name: str, content: str | None, part: str) -> None:
    spec = fakes.labelled(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    assert part in error_of(spec)


def test_a_type_of_data_set_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    fakes.shard(tmp_path / "test" / "0.tar", [{"txt": b"a\nb", "png": fakes.picture(0)}])
    (tmp_path / "test" / "nshards.txt").write_text("1")
    (tmp_path / "dataset_type.txt").write_bytes(b"\xef\xbb\xbfretrieval\r\n")
    assert open_dataset(f"wds:{tmp_path}").texts("test", "captions") == ["a", "b"]


def test_the_error_for_a_missing_split_lists_the_splits(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="allowed: test"):
        open_dataset(fakes.labelled(tmp_path)).hashes("train", "images")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"png": b"\x89PNG broken"}, "s00001: corrupt image"),
        ({"cls": b"-1"}, "class '-1'"),
        ({"cls": b"\xff"}, "not UTF-8"),
        ({"cls": b"9" * 5000}, f"class '{'9' * 20}', allowed"),
        ({"cls": None}, "s00001"),
    ],
)
def test_a_corrupt_sample_is_named(tmp_path: Path, change: dict[str, bytes | None], part: str) -> None:
    spec = fakes.labelled(tmp_path)
    good = {"cls": b"0", "png": fakes.picture(0)}
    changed = {name: content for name, content in (good | change).items() if content is not None}
    fakes.shard(tmp_path / "test" / "0.tar", [good, changed, good])
    assert part in error_of(spec)


@pytest.mark.parametrize(
    ("samples", "part"),
    [
        ([{}, {}], "no sample has a caption"),
        ([{"json": b"{broken"}], "s00000: its .json is corrupt"),
        ([{"json": b"[1]"}], "its .json is not an object"),
        ([{"json": b'{"captions": "one"}'}], "not a list of texts"),
    ],
)
def test_unusable_captions_are_named(tmp_path: Path, samples: list[dict[str, bytes]], part: str) -> None:
    fakes.shard(tmp_path / "0.tar", [{"png": fakes.picture(0)} | sample for sample in samples])
    assert part in error_of(f"captions:{tmp_path}")


def test_a_limit_that_leaves_no_caption_is_refused(tmp_path: Path) -> None:
    (drawn,) = draw(4, 1)
    spec = fakes.captioned(tmp_path, counts=tuple(int(i != drawn) for i in range(4)))
    assert "no sample has a caption" in error_of(spec, Settings(limit=1))


@pytest.mark.parametrize(
    ("annotations", "part"),
    [
        ([{"pair": 0, "category": "a"}], "even number"),
        ([{"pair": 0, "category": "a"}, {"pair": 1, "category": "a"}], 'differ in "pair"'),
        ([{"pair": 0}, {"pair": 0}], '"category" in its .json is not a text'),
    ],
)
def test_consecutive_samples_must_form_a_pair(tmp_path: Path, annotations: list[dict[str, object]], part: str) -> None:
    samples = [{"png": fakes.picture(0), "txt": b"x", "json": json.dumps(one).encode()} for one in annotations]
    fakes.shard(tmp_path / "0.tar", samples)
    assert part in error_of(f"pairs:{tmp_path}")


@pytest.mark.parametrize(
    ("split", "annotations", "spec", "expected"),
    [
        (".", None, "folder:{}", True),
        ("train", None, "captions:{}/train", True),
        ("train", None, "captions:{}/dev", False),
        (".", "pairs.csv", "csv:{}/pairs.csv", True),
        ("test", None, "captions:{}/test", True),  # a set as distributed: no such folder
        (".", None, "hf:{}", False),
        ("train", None, "hf:{}@train", True),
        ("train", None, "hf:{}@test", False),
        (".", None, "cifar10:{}", False),
        ("train", "pairs.csv", "karpathy:{}/pairs.csv", False),
        (".", None, "held_out:{}", False),
    ],
)
def test_a_set_in_the_place_of_the_training_pairs_is_known(
    tmp_path: Path, split: str, annotations: str | None, spec: str, expected: bool
) -> None:
    for name in ("train", "dev"):
        (tmp_path / name).mkdir()
    data = DataConfig(name="t", root=str(tmp_path), split=split, annotations=annotations)
    (tmp_path / "pairs.csv").touch()
    assert is_training_data(spec.format(tmp_path), data) is expected


def test_a_saved_hub_data_set_of_one_split_is_known_without_its_name(tmp_path: Path) -> None:
    data, spec = DataConfig(name="t", source="hf", root=str(tmp_path), split="train"), f"hf:{tmp_path}"
    assert not is_training_data(spec, data)
    (tmp_path / "state.json").touch()  # of save_to_disk
    assert is_training_data(spec, data) and is_training_data(f"{spec}@train", data)


def photographs(folder: Path, pictures: range, prefix: str = "") -> str:
    """Write images with the caption "a picture"; return the data set's spec."""
    folder.mkdir(exist_ok=True)
    for seed in pictures:
        (folder / f"{prefix}{seed}.png").write_bytes(fakes.picture(seed))
        (folder / f"{prefix}{seed}.txt").write_text("a picture")
    return f"folder:{folder}"


def test_images_that_a_run_trains_on_are_recognised_in_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = {"mine": range(20), "a": range(15, 25), "b": range(20, 30)}
    mine, copies, others = (photographs(tmp_path / name, pictures, name) for name, pictures in sets.items())
    data = DataConfig(name="t", source="folder", root=str(tmp_path / "mine"))
    assert training_copies(open_dataset(copies), data) == 5
    assert training_copies(open_dataset(others), data) == 0
    (tmp_path / "saved_again").mkdir()
    for name in ("mine0", "mine1", "mine2"):
        Image.open(tmp_path / "mine" / f"{name}.png").save(tmp_path / "saved_again" / f"{name}.jpg")
    for name, captions in (("mine0", "left\nright"), ("mine1", "up\ndown"), ("mine2", "a picture")):
        (tmp_path / "saved_again" / f"{name}.txt").write_text(captions)
    (tmp_path / "mine" / "mine0.txt").write_text("left\nright")
    data.captions = "random"
    assert training_copies(open_dataset(f"folder:{tmp_path / 'saved_again'}"), data) == 1, "the same two captions"
    assert training_copies(open_dataset(copies, Settings(limit=4)), data) > 0
    data.held_out = 0.5
    assert training_copies(open_dataset(mine), data) == 10, "held-out images are not trained on"
    data.root = str(tmp_path / "gone")
    assert training_copies(open_dataset(copies), data) == 0
    monkeypatch.setattr("evaluation.datasets.opening.open_source", None)
    for source in ("scenes", "hf"):
        no_files = DataConfig(name="t", source=source)
        assert training_copies(open_dataset(copies), no_files) == 0, "scenes are not rendered, hf: not downloaded"


def test_held_out_images_that_have_a_copy_among_the_training_images_are_counted(tmp_path: Path) -> None:
    for prefix in ("", "copy_"):
        photographs(tmp_path, range(20), prefix)
    data = DataConfig(name="t", source="folder", root=str(tmp_path), split=".", held_out=0.25)
    held_out = held_out_pairs("held_out:x", data)
    assert len(held_out.images(held_out.splits[0])) == 10 and training_copies(held_out, data) > 4


def test_training_pairs_in_a_forbidden_folder_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run may be a colleague's: its evaluation needs no training pairs."""
    spec = photographs(tmp_path / "mine", range(1))
    data = DataConfig(name="t", source="csv", root=str(tmp_path / "theirs"), split="train", annotations="pairs.csv")
    forbid(monkeypatch, Path, "stat", "theirs/pairs.csv")
    assert training_copies(open_dataset(spec), data) == 0 and not is_training_data(spec, data)
    shutil.copytree(tmp_path / "mine", tmp_path / "their")
    theirs = DataConfig(name="t", source="folder", root=str(tmp_path / "their"))
    assert training_copies(open_dataset(spec), theirs) == 1
    forbid(monkeypatch, Path, "open", "their/0.png")
    assert training_copies(open_dataset(spec), theirs) == 0, "an image that may not be read"
