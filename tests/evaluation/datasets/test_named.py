"""Sets known by name: replicas are read as torchvision reads them, and splits that we draw have paper 5's sizes."""

import io
import os
import tarfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torchvision.datasets as tv
import webdataset
from scipy.io import savemat

from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.files import scan
from evaluation.datasets.kinds import Captioned, Labelled, MinimalPairs
from evaluation.datasets.labelled import IMAGENETV2, SHARES, prepare_imagenet, share
from evaluation.datasets.named import NAMED, PULLED, Placed, pull
from evaluation.datasets.opening import open_dataset
from evaluation.datasets.torchvision_sets import READERS as OF_TORCHVISION
from evaluation.types import Settings
from tests.helpers import fakes, replicas
from tests.helpers.folder import add

Writer = Callable[[Path, pytest.MonkeyPatch], object]
Reader = Callable[[str], tv.VisionDataset]
# (name, split) -> writes a replica, torchvision's own reader
SETS: dict[tuple[str, str], tuple[Writer, Reader]] = {
    ("cifar10", "train"): (lambda root, patch: replicas.cifar(root, 10, patch), partial(tv.CIFAR10, train=True)),
    ("cifar100", "test"): (lambda root, patch: replicas.cifar(root, 100, patch), partial(tv.CIFAR100, train=False)),
    ("stl10", "test"): (replicas.stl10, partial(tv.STL10, split="test")),
    ("food101", "test"): (lambda root, patch: replicas.food101(root), partial(tv.Food101, split="test")),
    ("dtd", "test"): (lambda root, patch: replicas.dtd(root), partial(tv.DTD, split="test")),
    ("flowers102", "train"): (replicas.flowers102, partial(tv.Flowers102, split="train")),
    ("pets", "test"): (lambda root, patch: replicas.pets(root), partial(tv.OxfordIIITPet, split="test")),
    ("cars", "train"): (lambda root, patch: replicas.cars(root), partial(tv.StanfordCars, split="train")),
    ("aircraft", "val"): (lambda root, patch: replicas.aircraft(root), partial(tv.FGVCAircraft, split="val")),
}
FIRST = {"cifar10": "kind 0", "food101": "apple pie", "dtd": "banded", "cars": "Audi A5 Coupe 2012"}  # class names


def labelled(name: str, root: Path) -> Labelled:
    opened = open_dataset(f"{name}:{root}")
    assert isinstance(opened, Labelled) and opened.short == name
    return opened


@pytest.mark.parametrize(("name", "split"), SETS, ids="-".join)
def test_images_and_labels_equal_those_of_torchvisions_reader(
    name: str, split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = SETS[name, split]
    write(tmp_path, monkeypatch)
    data, reader = labelled(name, tmp_path), read(str(tmp_path))
    assert len(data.images(split)) == len(reader) > 0
    assert data.labels(split).tolist() == [reader[i][1] for i in range(len(reader))]
    for i in (0, len(reader) // 2, len(reader) - 1):
        np.testing.assert_array_equal(np.asarray(data.images(split)[i]), np.asarray(reader[i][0].convert("RGB")))
    splits = {"train", "test", "val"} if name in ("dtd", "flowers102", "aircraft") else {"train", "test"}
    assert set(data.splits) == splits and data.classnames[0] == FIRST.get(name, data.classnames[0])
    assert len({data.fingerprint(split, "images") for split in splits}) == len(splits)


def test_a_replaced_image_of_equal_size_is_another_data_set(tmp_path: Path) -> None:
    replicas.eurosat(tmp_path)
    data = labelled("eurosat", tmp_path)
    before = data.fingerprint("test", "images")
    path = data.images("test").paths[0]  # type: ignore[attr-defined]
    content = path.read_bytes()
    path.write_bytes(content[::-1])
    assert labelled("eurosat", tmp_path).fingerprint("test", "images") != before


# data set -> class name -> folder of the class, copied from the published data
FOLDERS = {
    "caltech101": {
        "background": "BACKGROUND_Google",
        "off-center face": "Faces",
        "centered face": "Faces_easy",
        "side of a car": "car_side",
        "face of a cougar cat": "cougar_face",
        "head of a  crocodile": "crocodile_head",
        "yin and yang symbol": "yin_yang",
    },
    "eurosat": {
        "annual crop land": "AnnualCrop",
        "brushland or shrubland": "HerbaceousVegetation",
        "highway or road": "Highway",
        "industrial buildings or commercial buildings": "Industrial",
        "permanent crop land": "PermanentCrop",
        "residential buildings or homes or apartments": "Residential",
        "lake or sea": "SeaLake",
    },
}


def folders_of(data: Labelled) -> dict[str, str]:
    """Return class name -> folder of the class."""
    paths = data.images("test").paths  # type: ignore[attr-defined]
    return {data.classnames[c]: Path(p).parent.name for p, c in zip(paths, data.labels("test").tolist(), strict=True)}


def test_pets_flowers_and_aircraft_have_the_right_name_at_each_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas.pets(tmp_path)
    replicas.aircraft(tmp_path)
    replicas.flowers102(tmp_path, monkeypatch)
    pets = labelled("pets", tmp_path)
    paths = pets.images("test").paths  # type: ignore[attr-defined]
    for path, label in zip(paths, pets.labels("test").tolist(), strict=True):
        assert path.stem.rpartition("_")[0].replace("_", " ").lower() == pets.classnames[label].lower()
    flowers = labelled("flowers102", tmp_path)
    named = {0: "pink primrose", 1: "hard-leaved pocket orchid", 49: "common dandelion", 73: "rose"}
    named |= {76: "passion flower", 101: "blackberry lily"}  # labels are one less than in imagelabels.mat
    assert {label: flowers.classnames[label] for label in named} == named
    assert [flowers.classnames[label] for label in flowers.labels("train").tolist()] == [
        "pink primrose",
        "blackberry lily",
        "canterbury bells",
    ]
    assert labelled("aircraft", tmp_path).classnames == ["707-320", "A340-600", "Yak-42"]


def test_stl10_is_read_without_its_unlabelled_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas.stl10(tmp_path, monkeypatch)
    (tmp_path / "stl10_binary" / "unlabeled_X.bin").unlink()
    data = labelled("stl10", tmp_path)
    assert (len(data.images("train")), len(data.images("test"))) == (20, 10)


def test_caltech_has_thirty_training_images_per_class_its_names_and_tests_on_all_others(tmp_path: Path) -> None:
    replicas.caltech101(tmp_path)
    data = labelled("caltech101", tmp_path)
    assert data.classnames[0] == "background" and data.classnames[5] == "accordion" and len(data.classnames) == 102
    assert FOLDERS["caltech101"].items() <= folders_of(data).items()
    assert Counter(data.labels("train").tolist()) == dict.fromkeys(range(102), 30)
    assert Counter(data.labels("test").tolist()) == {c: 1 + c % 3 for c in range(102)}
    train, test = (set(data.images(split).paths) for split in ("train", "test"))  # type: ignore[attr-defined]
    assert not train & test and len(train | test) == 3060 + 204
    assert len(tv.Caltech101(str(tmp_path))) == len(train | test) - 31  # torchvision leaves out the background


@pytest.mark.parametrize(("name", "total"), [("eurosat", 270), ("sun397", 30)])
def test_drawn_splits_do_not_overlap_are_the_same_in_every_call_and_have_the_right_names(
    name: str, total: int, tmp_path: Path
) -> None:
    (replicas.eurosat if name == "eurosat" else replicas.sun397)(tmp_path)
    data, second = labelled(name, tmp_path), labelled(name, tmp_path)
    paths = [path for split in data.splits for path in data.images(split).paths]  # type: ignore[attr-defined]
    assert len(paths) == len(set(paths)) <= total
    assert data.fingerprint("test", "images") == second.fingerprint("test", "images")
    reader = tv.EuroSAT(str(tmp_path)) if name == "eurosat" else tv.SUN397(str(tmp_path))
    folder_of = {c: name.lstrip("/") for name, c in reader.class_to_idx.items()}
    for path, label in zip(data.images("test").paths, data.labels("test").tolist(), strict=True):  # type: ignore[attr-defined]
        assert folder_of[label] in str(path)
    assert FOLDERS.get(name, {}).items() <= folders_of(data).items()


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("eurosat", {"train": 10_000, "test": 5_000}), ("sun397", {"train": 76_129, "val": 10_867, "test": 21_758})],
)
def test_drawn_splits_of_the_whole_set_have_the_papers_sizes(name: str, sizes: dict[str, int]) -> None:
    known, total = SHARES[name]
    drawn = {split: share(total, split, known, total) for split in known}
    assert {split: len(chosen) for split, chosen in drawn.items()} == sizes
    assert len({i for chosen in drawn.values() for i in chosen}) == sum(sizes.values())


def test_imagenets_labels_follow_the_order_of_the_wordnet_ids(tmp_path: Path) -> None:
    replicas.imagenet(tmp_path)
    data, reader = labelled("imagenet", tmp_path), tv.ImageNet(str(tmp_path / "imagenet"), split="val")
    assert data.labels("test").tolist() == [label for _, label in reader.samples] == list(range(1000))
    assert len(data.templates) == 80 and data.classnames[:2] == ["tench", "goldfish"]


def test_imagenetv2_has_only_a_test_split_and_sorts_its_folders_as_numbers(tmp_path: Path) -> None:
    replicas.class_folders(tmp_path / IMAGENETV2, [*map(str, range(1000))], 2)
    data = labelled("imagenetv2", tmp_path)
    assert data.splits == ("test",)
    assert data.labels("test").tolist() == [i // 2 for i in range(2000)]
    assert data.images("test").paths[200].endswith("/100/0.jpeg")  # type: ignore[attr-defined]
    (tmp_path / IMAGENETV2 / "7" / "1.jpeg").unlink()  # half copied
    with pytest.raises(UserError, match=r"format-val/7 is not complete: it has 1 images, .*format-val/\d+ 2$"):
        labelled("imagenetv2", tmp_path).labels("test")


def test_clevrs_labels_start_at_three_objects_and_agree_with_torchvisions(tmp_path: Path) -> None:
    replicas.clevr(tmp_path, {"train": [3, 4], "val": [10, 3, 7, 5]})
    data = labelled("clevr_count", tmp_path)
    reader = tv.CLEVRClassification(str(tmp_path), split="val")
    assert data.labels("test").tolist() == [reader[i][1] - 3 for i in range(4)] == [7, 0, 4, 2]
    assert data.classnames == ["three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    assert data.templates == ["a picture of {c} objects"] and set(data.splits) == {"train", "test"}


@pytest.mark.parametrize(
    ("name", "folder", "filepath"),
    [("mscoco", "", "val2014"), ("flickr30k", "flickr30k-images", ""), ("flickr8k", "Flicker8k_Dataset", "")],
)
def test_karpathys_test_split_has_every_caption(name: str, folder: str, filepath: str, tmp_path: Path) -> None:
    replicas.karpathy(tmp_path, name, folder, [5, 6, 1], filepath)
    data = fakes.opened(f"{name}:{tmp_path}", Captioned)
    assert (data.short, data.splits) == (name, ("test",))
    assert data.image_of_caption("test").bincount().tolist() == [5, 6, 1]
    assert data.texts("test", "captions")[5] == "caption 0 of 2"
    assert [image.size for image in data.images("test")] == [(8, 8)] * 3


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("ensemble", 'a photo of Statement "3", in words'),  # as in the benchmark's scripts/evaluate_vlm.py
        ("simple", 'Statement "3", in words'),
        ("there is {c}", 'there is Statement "3", in words'),
    ],
)
def test_statements_of_mmvp_get_the_chosen_prompt(tmp_path: Path, choice: str, expected: str) -> None:
    types = ["Color and Appearance", "Quantity and Count", "Color and Appearance", "Text"]
    replicas.mmvp(tmp_path, types, reverse=True)
    data = fakes.opened(f"mmvp:{tmp_path}", MinimalPairs, Settings(prompts=choice))
    assert data.texts("test", "captions")[2] == expected and data.categories("test") == types
    default = open_dataset(f"mmvp:{tmp_path}")
    is_default = choice == "ensemble"
    assert (data.hashes("test", "captions") == default.hashes("test", "captions")) is is_default
    assert (data.fingerprint("test", "captions") == default.fingerprint("test", "captions")) is is_default


SHARDS = {name: known.place for name, known in NAMED.items() if known.place.startswith("wds_")}


def test_sets_in_shards_have_their_classes_and_the_short_name(tmp_path: Path) -> None:
    for name, place in SHARDS.items():
        fakes.labelled(tmp_path / place, classes=3, test=6, groups=2)
        data = labelled(name, tmp_path)
        assert len(data.classnames) == 3 and data.labels("test").tolist() == [0, 1, 2, 0, 1, 2]


def test_the_published_names_of_clevrs_distances_have_an_empty_one(tmp_path: Path) -> None:
    names = ["very nearby", "nearby", "near", "", "distant", "very distant"]
    folder = tmp_path / SHARDS["clevr_distance"]
    fakes.labelled(folder, classes=6)
    (folder / "classnames.txt").write_text("\n".join(names) + "\n")
    data = labelled("clevr_distance", tmp_path)
    assert data.classnames == names == prompts.classnames("clevr_closest_object_distance")
    assert data.texts("test", "prompts")[6] == "a photo of a ." and data.labels("test").max() == 5


def test_groups_are_those_that_webdataset_reads(tmp_path: Path) -> None:
    fakes.labelled(tmp_path / SHARDS["fmow"], classes=3, test=18, groups=4)
    group = labelled("fmow", tmp_path).groups("test")
    shards = webdataset.WebDataset(str(tmp_path / SHARDS["fmow"] / "test" / "0.tar"), shardshuffle=False)
    expected = [int(row[0]) for (row,) in shards.decode().to_tuple("npy")]
    assert group is not None and group.tolist() == expected == [i // 3 % 4 for i in range(18)]


def test_groups_belong_to_the_sample_of_their_folder_and_shard(tmp_path: Path) -> None:
    folder = tmp_path / SHARDS["fmow"]
    fakes.labelled(folder)
    for group in range(2):
        members = {"cls": b"0", "png": fakes.picture(group), "npy": fakes.array([group])}
        with tarfile.open(folder / "test" / f"{group}.tar", "w") as tar:
            for extension, content in members.items():
                add(tar, f"./s0.{extension}", content)
    (folder / "test" / "nshards.txt").write_text("2\n")
    group_of = labelled("fmow", tmp_path).groups("test")
    assert group_of is not None and group_of.tolist() == [0, 1]


@pytest.mark.parametrize("wrong", [b"", b"no array", fakes.array([]), fakes.array([-1])])
def test_a_sample_without_a_group_is_named(tmp_path: Path, wrong: bytes) -> None:
    fakes.labelled(tmp_path / SHARDS["geode"])
    good = {"cls": b"0", "png": fakes.picture(0), "npy": fakes.array([0])}
    fakes.shard(tmp_path / SHARDS["geode"] / "test" / "0.tar", [good, good | {"npy": wrong}])
    with pytest.raises(UserError, match=r"s00001: needs a \.npy whose first number is its group, 0 or larger"):
        labelled("geode", tmp_path).labels("test")


def test_a_limit_keeps_the_groups_of_the_drawn_images(tmp_path: Path) -> None:
    fakes.labelled(tmp_path / SHARDS["fmow"], classes=3, test=18, groups=6)
    data = fakes.opened(f"fmow:{tmp_path}", Labelled, Settings(limit=7))
    group, whole = data.groups("test"), labelled("fmow", tmp_path)
    assert group is not None and len(group) == 7
    pictures = [np.asarray(image).tolist() for image in whole.images("test")]
    drawn = [pictures.index(np.asarray(image).tolist()) for image in data.images("test")]
    assert group.tolist() == [i // 3 for i in drawn]
    assert data.hashes("test", "images")["groups"] != whole.hashes("test", "images")["groups"]


def test_the_error_for_a_missing_named_set_names_the_path_and_the_source(tmp_path: Path) -> None:
    for name in NAMED:
        with pytest.raises(UserError) as caught:
            open_dataset(f"{name}:{tmp_path}")
        message = str(caught.value)
        assert f"datasets={name}:{tmp_path}: no {tmp_path}/" in message and "\n" not in message
        source = f"it comes from {NAMED[name].get.split('ROOT')[0]}"
        assert (source if NAMED[name].get else f"get it with `clipx data pull {name} sets={tmp_path}`") in message


def test_sets_without_another_source_are_downloaded_with_torchvision_or_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_hub = {name for name, known in NAMED.items() if isinstance(known, Placed) and known.hub}
    downloads = {*OF_TORCHVISION} - {"cars"}
    assert {*PULLED} == of_hub | downloads and not of_hub & downloads

    downloaded = []

    def download(repository: str, repo_type: str, local_dir: Path) -> None:
        assert (repository, repo_type) == ("clip-benchmark/wds_mnist", "dataset")
        downloaded.append(repository)
        fakes.labelled(local_dir)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    for _ in range(2):  # the second time, the set is there
        pull("mnist", tmp_path)
    assert labelled("mnist", tmp_path).splits == ("test",) and len(downloaded) == 1


def archive(path: Path, members: dict[str, bytes]) -> bytes:
    """Write a tar file, and return its content."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as file:
        for name, content in members.items():
            add(file, name, content)
    return path.read_bytes()


def test_the_archives_of_imagenet_are_unpacked_to_what_the_evaluation_reads(tmp_path: Path) -> None:
    ids = [f"n{c:08d}" for c in range(1000)]
    picture = fakes.picture(0)
    images = {f"ILSVRC2012_val_{i + 1:08d}.JPEG": picture for i in range(1000)}
    truth = "".join(f"{1000 - i}\n" for i in range(1000)).encode()  # class number of each image, from 1
    synsets = io.BytesIO()
    known = np.array([(i + 1, name) for i, name in enumerate(ids)], dtype=[("ILSVRC2012_ID", "i8"), ("WNID", "O")])
    savemat(synsets, {"synsets": known})
    devkit = {"ILSVRC2012_validation_ground_truth.txt": truth, "meta.mat": synsets.getvalue()}
    inner = archive(tmp_path / "imagenet" / "class.tar", {"one.JPEG": picture})
    archive(tmp_path / "imagenet" / "ILSVRC2012_img_train.tar", {f"{name}.tar": inner for name in ids})
    archive(tmp_path / "imagenet" / "ILSVRC2012_img_val.tar", images)
    with pytest.raises(UserError, match=r"no .*/ILSVRC2012_devkit_t12, and no .*devkit_t12\.tar\.gz to unpack"):
        prepare_imagenet(tmp_path)
    archive(
        tmp_path / "imagenet" / "ILSVRC2012_devkit_t12.tar.gz",
        {f"ILSVRC2012_devkit_t12/data/{name}": content for name, content in devkit.items()},
    )
    assert prepare_imagenet(tmp_path) == {"val": 1000, "train": 1000}
    meta = tmp_path / "imagenet" / "ILSVRC2012_devkit_t12" / "data" / "meta.mat"
    meta.write_bytes(b"")
    with pytest.raises(UserError, match=r"does not hold the devkit as published \(Mat file appears to be"):
        labelled("imagenet", tmp_path).labels("test")
    meta.write_bytes(synsets.getvalue())
    (tmp_path / "imagenet" / "val" / "@eaDir").mkdir()  # added by a network drive
    data = labelled("imagenet", tmp_path)
    assert data.labels("test").tolist() == [999 - i for i in range(1000)]
    assert data.labels("train").tolist() == list(range(1000))
    (tmp_path / "imagenet" / "val" / "ILSVRC2012_val_00000007.JPEG").unlink()
    with pytest.raises(UserError, match=r"imagenet/val has 999 images, the list of ids 1000 of 1000 classes"):
        prepare_imagenet(tmp_path)


def test_a_listing_is_kept_until_a_folder_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.datasets.files.MANY", 2)
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        replicas.write(folder / "2.JPEG", b"12")
        replicas.write(folder / ".hidden.jpg", b"")
        os.utime(folder, ns=(0, 10**18))
    found = scan(folders)
    assert [[(name, size) for name, size, _ in of_folder] for of_folder in found] == [[("2.JPEG", 2)]] * 2
    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", None)
        assert scan(folders) == found
    replicas.write(folders[1] / "1.png", b"1")
    assert [name for name, _, _ in scan(folders)[1]] == ["1.png", "2.JPEG"]
    replicas.write(folders[1] / "0.png", b"1")  # at once: the time of the folder may be the same as before
    assert [name for name, _, _ in scan(folders)[1]] == ["0.png", "1.png", "2.JPEG"]
