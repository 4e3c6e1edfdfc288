"""Shards, tables and images as people have them: read, or named in one line; never lost without a word."""

import gzip
import io
import json
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from clipx.config.schema import DataConfig
from clipx.data.preprocess.captions import all_from_member
from clipx.data.preprocess.images import BadSample, decode, to_rgb
from clipx.data.sources import flickr
from clipx.data.sources.base import PairSource
from clipx.data.sources.files import read_coco
from clipx.data.sources.opening import open_pair_source, open_source
from clipx.data.sources.streams import Stream
from clipx.errors import UserError
from evaluation.datasets.files import FileImages
from evaluation.datasets.opening import open_dataset
from tests.helpers.folder import add, jpeg
from tests.helpers.layout_faults import forbid

N = 6


def shard(folder: Path, names: list[str]) -> PairSource:
    """Write a shard with these members, images or texts by their last extension, and open it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "0.tar", "w") as tar:
        for name in names:
            add(tar, name, jpeg("red") if name.endswith("jpg") else b"a red picture")
    return opened(folder)


def opened(folder: Path, source: str = "shards", split: str = ".", **settings: Any) -> PairSource:
    return open_pair_source(DataConfig(name="t", source=source, root=str(folder), split=split, **settings))


def streamed(url: Path, samples: int = 1, **settings: Any) -> Stream:
    stream = open_source(DataConfig(name="t", source="webdataset", urls=[str(url)], num_samples=samples, **settings))
    assert isinstance(stream, Stream)
    return stream


def pairs(pattern: str = "{:03d}") -> list[str]:
    return [f"{pattern.format(i)}.{extension}" for i in range(N) for extension in ("jpg", "txt")]


@pytest.mark.parametrize(
    ("names", "problems", "message"),
    [
        ([name for one in pairs() for name in (f"./._{one}", f"./{one}")], 0, ""),
        (sorted(pairs(), key=lambda name: name.rpartition(".")[2]), 0, ""),
        ([name for i in range(N) for name in [f"{i}.jpg", f"{i}.txt"] * 2], 1, "stored more than once"),
        (pairs() + pairs("{:03d}.v2"), N, "its extension is v2.jpg"),
        ([name.replace("2.txt", "2.TXT") for name in pairs() + pairs("{:03d}.v2")], N, "its extension is v2.jpg"),
        (sorted(pairs() + [f"{i:03d}.seg.png" for i in range(N)]), 0, ""),
        # no sample is lost, so one line for all
        (sorted(pairs() + [f"{i:03d}.png" for i in range(N)]), 1, ".jpg is used; the same for 5 other members"),
    ],
    ids=[
        "hidden files of macOS",
        "members apart",
        "pairs twice",
        "names with dots",
        "upper case",
        "masks",
        "two images",
    ],
)
def test_each_pair_is_read_once_and_other_members_are_named(
    tmp_path: Path, names: list[str], problems: int, message: str
) -> None:
    source = shard(tmp_path, names)
    assert (len(source), len(source.problems)) == (N, problems)
    assert all(message in problem for problem in source.problems)
    assert source.pair(3, random.Random(0)) == (jpeg("red"), "a red picture")


def test_a_sample_with_two_masks_and_no_image_is_one_bad_sample(tmp_path: Path) -> None:
    source = shard(tmp_path, [*pairs(), "9.depth.png", "9.seg.png", "9.txt"])
    assert source.problems == ["0.tar:9 lacks image"]


def test_the_first_of_two_images_is_used_also_if_it_is_stored_twice_and_in_a_stream(tmp_path: Path) -> None:
    for stored in (["0.jpg", "0.png", "0.jpg", "0.txt"], ["0.jpg", "0.png", "0.txt"]):
        source = shard(tmp_path, stored)
        assert any("0.png is ignored, 0.jpg is used" in problem for problem in source.problems)
        assert source.image(0) == jpeg("red")
    assert next(streamed(tmp_path).pairs(random.Random(0))).image == jpeg("red")


def test_the_extensions_found_are_named_and_a_setting_reads_them(tmp_path: Path) -> None:
    names = [name.replace(".txt", ".caption").replace(".jpg", ".left.jpg") for name in pairs()]
    with pytest.raises(UserError, match=r"other extensions: caption \(6\), left\.jpg \(6\); data\.image_column"):
        shard(tmp_path, names)
    source = opened(tmp_path, image_column="left.jpg", caption_column=".caption")
    assert (len(source), source.captions(0)) == (N, ["a red picture"])


@pytest.mark.parametrize("reverse", [False, True])
def test_of_several_images_and_texts_a_setting_chooses_and_the_others_are_no_bad_samples(
    tmp_path: Path, reverse: bool
) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for name in sorted(["1.mask.jpg", "1.jpg", "1.PNG", "1.txt", "1.alt.txt"], reverse=reverse):
            add(tar, name, name.encode())
    columns: dict[str, Any] = {"image_column": ".png", "caption_column": ".alt.txt"}
    source, pair = opened(tmp_path, **columns), next(streamed(tmp_path, **columns).pairs(random.Random(0)))
    assert (source.pair(0, random.Random(0)), source.problems) == ((b"1.PNG", "1.alt.txt"), [])
    assert (pair.image, pair.caption) == (b"1.PNG", "1.alt.txt")


@pytest.mark.parametrize("name", ["0.tar", "0.tar.gz", "1.tgz"])
def test_compressed_shards_are_named(tmp_path: Path, name: str) -> None:
    shard(tmp_path / "good", pairs())
    (tmp_path / "compressed").mkdir()
    (tmp_path / "compressed" / "9.tar").write_bytes((tmp_path / "good/0.tar").read_bytes())
    (tmp_path / "compressed" / name).write_bytes(gzip.compress((tmp_path / "good/0.tar").read_bytes()))
    with pytest.raises(UserError, match=rf"{name} is compressed.*unpack it"):
        opened(tmp_path / "compressed")


def test_a_link_is_not_followed_and_counts_once_and_paths_are_used_only_as_keys(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(jpeg("blue"))
    (tmp_path / "s").mkdir()
    with tarfile.open(tmp_path / "s" / "0.tar", "w") as tar:
        link = tarfile.TarInfo("this is 2.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret.jpg")
        tar.addfile(link)
        add(tar, "this is 2.txt", b"a red picture")
        add(tar, "../secret.jpg", jpeg("red"))
        add(tar, "../secret.txt", b"a red picture")
    source = opened(tmp_path / "s")
    assert (len(source), list(source.problems)) == (1, ["0.tar: this is 2.jpg is a link or device, not followed"])
    assert source.pair(0, random.Random(0)) == (jpeg("red"), "a red picture")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "secret.jpg"]


def png(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


def test_grey_values_of_16_bits_are_divided_by_257() -> None:
    values = np.arange(0, 65536, 257, dtype=np.uint16).reshape(16, 16)
    pixels = np.asarray(decode(png(Image.fromarray(values))))
    assert np.array_equal(pixels, np.repeat(np.arange(256).reshape(16, 16, 1), 3, axis=2))


@pytest.mark.parametrize("mode", ["F", "I"])
def test_images_of_an_unknown_range_are_refused_by_name(mode: str) -> None:
    with pytest.raises(BadSample, match=f"mode {mode}: the range of 32-bit values is unknown"):
        to_rgb(Image.new(mode, (4, 4)))


def test_images_with_megabytes_of_metadata_are_read() -> None:
    text = PngImagePlugin.PngInfo()
    text.add_text("comment", "x" * 3_000_000, zip=True)
    assert decode(png(Image.new("RGB", (4, 4), "red"), pnginfo=text)).getpixel((0, 0)) == (255, 0, 0)


def table(folder: Path, name: str, lines: list[str], **settings: Any) -> PairSource:
    for i in range(12):
        (folder / f"{i}.jpg").write_bytes(jpeg("red"))
    (folder / name).write_text("\n".join(lines) + "\n")
    return opened(folder, name[-3:], annotations=name, **settings)


@pytest.mark.parametrize("odd", [('"a quote opens', 'and closes"'), ('"The ball" by an artist', "b"), ('"open', "b")])
@pytest.mark.parametrize("end", [[], [""]], ids=["", "empty line"])
def test_a_stray_quote_of_a_table_of_tabs_swallows_no_rows(
    tmp_path: Path, odd: tuple[str, str], end: list[str]
) -> None:
    captions = [f"picture {i}" for i in range(12)]
    captions[4], captions[9] = odd
    rows = [f"{i}.jpg\t{caption}" for i, caption in enumerate(captions)]
    source = table(tmp_path, "pairs.tsv", ["image\tcaption", *rows, *end], captions="each")
    assert [source.captions(i)[0] for i in range(len(source))] == captions


@pytest.mark.parametrize(("captions", "read"), [("each", ["one", "two", ""]), ("first", ["one", ""])])
def test_an_empty_caption_beside_good_ones_is_no_bad_sample(tmp_path: Path, captions: str, read: list[str]) -> None:
    lines = ["filepath,title", "0.jpg,", "0.jpg,one", "0.jpg,two", "1.jpg,"]  # open_clip's names of the columns
    source = table(tmp_path, "pairs.csv", lines, captions=captions)
    assert [source.captions(i)[0] for i in range(len(source))] == read  # image 1 has no other: a bad sample
    assert not source.problems  # each would count as a bad sample


def test_an_evaluation_uses_the_captions_beside_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(jpeg("red"))
    (tmp_path / "pairs.csv").write_text("image,caption\n0.jpg,\n0.jpg,one\n0.jpg,two\n")
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        add(tar, "0.jpg", jpeg("red"))
        add(tar, "0.json", json.dumps({"captions": ["", "one", "two"]}).encode())
    for spec in (f"csv:{tmp_path}/pairs.csv", f"captions:{tmp_path}"):
        opened = open_dataset(spec)
        assert opened.texts(opened.splits[0], "captions") == ["one", "two"]


def photographs(folder: Path, names: list[str]) -> None:
    """Write a red image for each name of an image, and two captions for each other name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(jpeg("red") if name.endswith(("jpg", "PNG")) else b"a dog\n\na brown dog\n")


TEXTS = ["a dog", "a brown dog"]
LACKS = "has no caption (no {}.txt, no folder of its class)"


@pytest.mark.parametrize(
    ("names", "split", "captions", "problems"),
    [
        (
            ["7.jpg", "7.txt", "sub/8.v2.PNG", "sub/8.v2.txt", "big_cat/1.jpg", "9.jpg", ".trash/1.jpg"],
            ".",
            {"7.jpg": TEXTS, "sub/8.v2.PNG": TEXTS},
            [f"9.jpg {LACKS.format(9)}", f"big_cat/1.jpg {LACKS.format(1)}"],
        ),
        (
            ["7.jpg", "7.txt", "8.GIF", "9.jpe", "@eaDir/1.jpg"],
            ".",
            {"7.jpg": TEXTS},
            ["8.GIF: .GIF is not read", "9.jpe: .jpe is not read"],
        ),
        (
            ["big_cat/1.jpg", "dog/2.jpg", "3.jpg", "__MACOSX/dog/._2.jpg"],
            ".",
            {"big_cat/1.jpg": ["a photo of a big cat"], "dog/2.jpg": ["a photo of a dog"]},
            [f"3.jpg {LACKS.format(3)}"],
        ),
        (
            ["train/cat/1.jpg", "train/cow/3.jpg", "test/dog/2.jpg"],
            "train",
            {"cat/1.jpg": ["a photo of a cat"], "cow/3.jpg": ["a photo of a cow"]},
            [],
        ),
    ],
    ids=["texts beside images", "other formats", "classes", "a split"],
)
def test_a_folder_of_images_has_the_captions_of_text_files_or_of_class_folders(
    tmp_path: Path, names: list[str], split: str, captions: dict[str, list[str]], problems: list[str]
) -> None:
    photographs(tmp_path, names)
    source = opened(tmp_path, "folder", split, captions="random")
    assert {source.where(i): source.captions(i) for i in range(len(source))} == captions
    assert list(source.problems) == problems
    assert source.image(0) == jpeg("red")


def test_one_file_in_three_spellings_is_one_image(tmp_path: Path) -> None:
    photographs(tmp_path, ["images/a.jpg"])
    places = ("images/a.jpg", "./images/a.jpg", " images/a.jpg ")
    rows = [f"{place},{text}\n" for place, text in zip(places, "abc", strict=True)]
    (tmp_path / "t.csv").write_text("".join(["image, caption\n", *rows]))
    source = opened(tmp_path, "csv", annotations="t.csv", captions="random")
    assert [(source.image(i), source.captions(i)) for i in range(len(source))] == [(jpeg("red"), ["a", "b", "c"])]


def test_two_files_of_one_id_in_coco_are_named(tmp_path: Path) -> None:
    images = [{"id": 1, "file_name": "a.jpg"}, {"id": 1, "file_name": "b.jpg"}]
    (tmp_path / "c.json").write_text(json.dumps({"images": images, "annotations": [{"image_id": 1, "caption": "x"}]}))
    with pytest.raises(UserError, match=r'"images" has the id 1 for a\.jpg and b\.jpg'):
        read_coco(tmp_path / "c.json")


def test_a_byte_order_mark_is_no_part_of_a_caption() -> None:
    assert all_from_member("txt", b"\xef\xbb\xbfa dog") == ["a dog"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_text_that_is_not_utf_8_leaves_out_its_image_only(tmp_path: Path, encoding: str) -> None:
    photographs(tmp_path, ["7.jpg", "7.txt", "8.jpg"])
    (tmp_path / "8.txt").write_bytes("ein Hund für mich\r\n".encode(encoding))
    source = opened(tmp_path, "folder")
    assert len(source) == 1 and list(source.problems) == ["8.jpg has no caption (8.txt is empty or not in UTF-8)"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["notes.txt"], r"has no images \(\.jpg, \.jpeg, \.png, \.webp\)"),
        (["val/cat/1.jpg", "test/dog/2.jpg"], r"no folder .*train; data.split=train allowed: val, test"),
        (["Images/1.jpg", "captions/1.txt"], "captions beside it .*, and its folder Images is no class"),
        (["Train/1.jpg", "Test/2.jpg"], "captions beside it .*, and its folder Test is no class"),
        (["cat/1.jpg"], "captions beside it .*, and one folder, cat, is no set of classes"),
    ],
)
def test_a_folder_without_images_the_split_or_classes_is_named(tmp_path: Path, names: list[str], message: str) -> None:
    photographs(tmp_path, names)
    with pytest.raises(UserError, match=message):
        opened(tmp_path, "folder", "train")


def official(split: str) -> list[str]:
    """Return the names of all images of an official split of Flickr8k, with endings of our own."""
    lines = Path(flickr.__file__).with_name("flickr8k_split.txt").read_text().splitlines()
    (numbers,) = (line.split()[1:] for line in lines if line.startswith(f"{split} "))
    return [f"{number}_x.jpg" for number in numbers]


@pytest.mark.parametrize("table", ["captions.txt", "Flickr8k.token.txt"])
def test_flickr8k_as_distributed_has_the_official_splits(tmp_path: Path, table: str) -> None:
    """The training split has 6,000 photographs, the two others 1,000 each (Hodosh et al. 2013)."""
    names = {split: official(split) for split in ("train", "dev", "test")}
    assert [len(of_split) for of_split in names.values()] == [6000, 1000, 1000]
    listed = [*names["test"], "1_x.jpg", *names["dev"], *names["train"]]
    (tmp_path / "Images").mkdir()
    for name in (names["train"][0], names["test"][0]):
        (tmp_path / "Images" / name).write_bytes(jpeg("red"))
    captions = ["A dog , black .", "Two dogs ."]
    if table == "captions.txt":
        rows = ["image,caption", *(f'{name},"{caption}"' for name in listed for caption in captions)]
    else:
        rows = [f"{name}#{i}\t{caption}" for name in listed for i, caption in enumerate(captions)]
    (tmp_path / table).write_text("\n".join(rows))
    source = opened(tmp_path, split="train", captions="random")
    assert {source.where(i) for i in range(len(source))} == {*names["train"]}
    first = next(i for i in range(len(source)) if source.where(i) == names["train"][0])
    assert source.captions(first) == captions
    assert source.image(first) == jpeg("red")


def test_splits_of_flickr30k_need_karpathys_file(tmp_path: Path) -> None:
    (tmp_path / "captions.txt").write_text("image,caption\n10_a.jpg,A dog .\n")
    with pytest.raises(UserError, match=r"has 0 of the 6000 images of Flickr8k's train split; for Flickr30k, add Karp"):
        opened(tmp_path, split="train")


@pytest.mark.parametrize("split", ["train", "dev", "val", "test"])
def test_karpathys_splits_are_read_for_training_and_evaluation(tmp_path: Path, split: str) -> None:
    names = {name: f"{number}.jpg" for number, name in enumerate(("train", "val", "test"))}
    images = [{"split": s, "filename": name, "sentences": [{"raw": f"of {s}"}]} for s, name in names.items()]
    (tmp_path / "dataset_flickr30k.json").write_text(json.dumps({"dataset": "flickr30k", "images": images}))
    photographs(tmp_path / "flickr30k-images", [*names.values()])
    expected = [f"of {'val' if split == 'dev' else split}"]
    source = opened(tmp_path, split=split)
    assert [source.captions(i) for i in range(len(source))] == [expected]
    evaluated = open_dataset(f"captions:{tmp_path / split}")
    assert evaluated.texts(split, "captions") == expected and len(evaluated.images(split)) == 1


def test_a_split_as_distributed_reads_no_image_outside_its_folder(tmp_path: Path) -> None:
    photographs(tmp_path, ["secret.jpg", "root/Images/1.jpg"])
    names = ("1.jpg", "../../secret.jpg", str(tmp_path / "secret.jpg"))
    images = [{"split": "train", "filename": name, "sentences": [{"raw": "a dog"}]} for name in names]
    (tmp_path / "root" / "dataset_flickr8k.json").write_text(json.dumps({"images": images}))
    source = opened(tmp_path / "root", split="train")
    assert [source.where(i) for i in range(len(source))] == ["1.jpg"]
    assert [problem.split()[1] for problem in source.problems] == sorted(names[1:])


def test_linked_class_folders_are_read_and_unreadable_ones_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photographs(tmp_path, ["elsewhere/1.jpg", "root/cat/1.jpg", "root/dog.jpg/3.jpg"])
    (tmp_path / "root/cow").symlink_to(tmp_path / "elsewhere")
    root = tmp_path / "root"
    assert [opened(root, "folder").where(i) for i in range(3)] == ["cat/1.jpg", "cow/1.jpg", "dog.jpg/3.jpg"]
    for target, problem in ((tmp_path / "gone", "leads to nothing"), (tmp_path, "leads to a folder that holds it")):
        (root / "bad").symlink_to(target)
        for read in (lambda: opened(root, "folder"), lambda: open_dataset(f"folder:{root}")):
            with pytest.raises(UserError, match=rf"root/bad {problem}"):
                read()
        (root / "bad").unlink()
    forbid(monkeypatch, os, "scandir", "root/cat")
    for forbidden in (lambda: opened(root, "folder"), lambda: open_dataset(f"folder:{root}"), lambda: streamed(root)):
        with pytest.raises(UserError, match=r"root/cat cannot be read \(Permission denied\)"):
            forbidden()


def test_an_evaluation_says_that_a_file_is_forbidden_and_not_that_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photographs(tmp_path, ["images/1.jpg", "sets/test/nshards.txt"])
    paths = [tmp_path / "images" / "1.jpg"]
    images = FileImages(tmp_path, paths)
    for function in ("read_bytes", "stat"):
        with monkeypatch.context() as patch, pytest.raises(UserError, match=r"1\.jpg: cannot be read \(.*Permission d"):
            forbid(patch, Path, function, "1.jpg")
            images.at(0)
    forbid(monkeypatch, Path, "stat", "1.jpg")
    with pytest.raises(UserError, match=r"1\.jpg cannot be read \(Permission denied"):
        FileImages(tmp_path, paths)
    forbid(monkeypatch, Path, "stat", "nshards.txt")
    with pytest.raises(UserError, match=r"datasets=wds:.*cannot use .*test/nshards\.txt: Permission denied"):
        open_dataset(f"wds:{tmp_path}/sets")


def test_shards_in_capitals_are_read_and_those_in_sub_folders_beside_others_named(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    shard(folder, pairs())
    (folder / "0.tar").rename(folder / "1.TAR")
    shard(folder / "lost+found", pairs())  # of Linux: no folder of the user
    assert len(opened(folder)) == N
    shard(tmp_path / "elsewhere", pairs())
    (folder / "more").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"holds \.tar shards; .*more also"):
        opened(folder)
    shard(folder / "parts" / "part-0", pairs())
    with pytest.raises(UserError, match=r"holds no \.tar shards; .*part-0 does"):
        opened(folder / "parts")
    assert streamed(folder).shards == [[f"{folder}/{name}" for name in ("1.TAR", "more/0.tar", "parts/part-0/0.tar")]]


def test_a_pipe_or_a_folder_in_place_of_a_shard_is_named(tmp_path: Path) -> None:
    for make in (os.mkfifo, os.mkdir):
        (tmp_path / make.__name__).mkdir()
        make(tmp_path / make.__name__ / "0.tar")
        with pytest.raises(UserError, match=r"0\.tar is no file"):
            opened(tmp_path / make.__name__)


def test_a_source_names_each_sample_that_a_cut_shard_has_lost_and_a_stream_their_number(tmp_path: Path) -> None:
    # members that are not read change no number of samples
    assert len(shard(tmp_path, [f"{i:03d}.{ending}" for i in range(N) for ending in ("npy", "jpg", "txt")])) == N
    with tarfile.open(tmp_path / "0.tar") as tar:
        middle = tar.getmember("002.jpg").offset_data + 100
    os.truncate(tmp_path / "0.tar", middle)
    source = opened(tmp_path)
    lost = [f"0.tar: {i:03d} is lost, because the shard is cut" for i in range(3, N)]
    assert (len(source), list(source.problems)) == (2, ["0.tar: cut in the middle of 002.jpg after 2 samples", *lost])
    found = streamed(tmp_path / "0.tar", samples=N)._shard(str(tmp_path / "0.tar"), random.Random(0))
    (problem,) = [one for one in found if one.error]
    assert (problem.where, problem.lost) == ("0.tar", N - 3)
    assert problem.error.endswith("it ends after 2 samples, about 4 samples are lost")


@pytest.mark.parametrize("sign", [";", "|", "\t", ","])
def test_a_table_is_read_with_the_delimiter_of_its_header(tmp_path: Path, sign: str) -> None:
    lines = [
        f"image{sign} number{sign} caption",
        f'0.jpg{sign}0{sign} A "big" dog {"" if sign == "," else ", black"} .',
    ]
    source = table(tmp_path, "pairs.csv", lines)
    expected = ['A "big" dog  .' if sign == "," else 'A "big" dog , black .']
    assert [text.strip() for text in source.captions(0)] == expected
    assert open_dataset(f"csv:{tmp_path}/pairs.csv").texts("all", "captions") == expected


def test_a_pipe_instead_of_an_image_is_a_bad_sample_and_ends_an_evaluation_in_one_line(tmp_path: Path) -> None:
    photographs(tmp_path, ["a/1.jpg", "b/3.jpg"])
    os.mkfifo(tmp_path / "a" / "2.jpg")  # nobody writes to it
    source = opened(tmp_path, "folder")
    (at,) = (i for i in range(len(source)) if source.where(i).endswith("2.jpg"))
    with pytest.raises(BadSample, match="neither a file"):
        source.image(at)
    with pytest.raises(UserError, match=r"2\.jpg: cannot be read \(.*neither a file"):
        list(open_dataset(f"folder:{tmp_path}").images("test"))
