"""`clipx data`: the index, keywords, the list for img2dataset, downloads, and the check of shards."""

import io
import json
import subprocess
import tarfile
from pathlib import Path
from urllib.error import URLError

import pytest
from pyarrow import csv as arrow

from cli.data import data
from clipx.data.shards import tar
from clipx.data.shards.reader import Shards
from clipx.errors import UserError
from evaluation.datasets import torchvision_sets
from tests.helpers.folder import add, add_bad_samples, jpeg, write_shards


def test_the_index_is_written_into_the_folder_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_shards(tmp_path / "s", samples=20)
    with tarfile.open(folder / "00001.tar", "a") as shard:
        add(shard, "000001.jpg", jpeg("red"))
        add(shard, "000002.mp4", b"x")
    data(["index", str(folder)])
    printed = capsys.readouterr().out
    assert "21 samples in 2 shards" in printed and "with txt    20" in printed and "3 problems" in printed
    assert (folder / "clipx_index" / "report.txt").read_text().splitlines() == [
        "00001.tar:000001 lacks txt",
        "00001.tar:000001 repeats an earlier key",
        "00001.tar: 1 members .mp4, unused",
    ]
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(tar, "scan", None)  # a second scan would fail
    assert len(Shards.open(folder, ("image", "txt"))) == 20


def test_names_in_a_shard_of_another_encoding_or_with_escape_codes_are_reported(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as shard:
        for name in ("a.jpg", "a.txt", "photo.n\xba1", "b.\x1b[31mred"):
            add(shard, name, jpeg("red"))
    data(["index", str(tmp_path)])
    assert (tmp_path / "clipx_index" / "report.txt").read_text().splitlines() == [
        "0.tar: 1 members . [31mred, unused",
        "0.tar: 1 members .n 1, unused",
    ]


def test_captions_are_counted_per_keyword(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_shards(tmp_path / "s", samples=24)
    data(["keywords", str(folder), "keywords=[red,blue,dog]"])
    rows = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows == {"red": "4", "blue": "4", "dog": "0", "no": "label", "unreadable": "0"}


ROOT = Path(__file__).parents[2]
ROWS = [
    ('a "quoted" dog', "http://a.example/1.jpg"),
    ('"all of it"', "https://b.example/2.jpg"),
    ("it's", "http://c/3"),
]


def test_the_command_of_the_data_page_gives_img2dataset_a_header_and_quotes(tmp_path: Path) -> None:
    (tmp_path / "list.tsv").write_text("".join(f"{caption}\t{url}\n" for caption, url in ROWS))  # as CC3M's list
    (line,) = [line for line in (ROOT / "docs/data.md").read_text().splitlines() if line.startswith("awk ")]
    script = line.replace("Train_GCC-training.tsv", "list.tsv").replace("> cc3m.tsv", "")
    made = subprocess.run(["bash", "-c", script], check=True, capture_output=True, cwd=tmp_path).stdout
    table = arrow.read_csv(io.BytesIO(made), parse_options=arrow.ParseOptions(delimiter="\t"))  # as img2dataset
    assert list(zip(table["caption"].to_pylist(), table["url"].to_pylist(), strict=True)) == ROWS


def test_pull_downloads_into_root_and_without_a_network_raises_a_user_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline(root: str, part: str, download: bool) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setitem(torchvision_sets.READERS, "cifar10", offline)
    with pytest.raises(UserError, match=r"cifar10 was not downloaded: .*Name or service not known"):
        data(["pull", "cifar10", f"sets={tmp_path}"])
    got: list[tuple[str, str, bool]] = []
    monkeypatch.setitem(torchvision_sets.READERS, "cifar10", lambda *given: got.append(given))
    data(["pull", "cifar10", f"sets={tmp_path}"])
    assert got == [(str(tmp_path), "test", True)] and "datasets=[cifar10]" in capsys.readouterr().out


def report(folder: Path) -> tuple[dict[str, object], list[str]]:
    return json.loads((folder / "verify.json").read_text()), (folder / "verify.txt").read_text().splitlines()


def test_every_kind_of_damage_is_named_and_too_much_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_shards(tmp_path / "s", samples=89)
    add_bad_samples(folder)
    data(["verify", str(folder), "workers=2", "max_bad_rate=0.5"])
    content, lines = report(folder)
    assert (content["shards"], content["samples"], content["corrupt"], content["index_problems"]) == (8, 98, 8, 3)
    corrupt = {line.split(":")[1] for line in lines[3:]}
    assert corrupt == {"truncated", "empty_text", "blank_text", "zeros", "empty", "extension", "bomb", "latin"}
    assert sum("cut.tar" in line for line in lines[:3]) == 1  # the cut, and not again its sample
    assert sum(line.startswith("corrupt.tar:no_text") for line in lines[:3]) == 1
    printed = capsys.readouterr().out
    assert "98 samples of 8 shards read with 2 processes" in printed
    assert "8 corrupt, 3 left out by the index" in printed
    with pytest.raises(UserError, match=r"11 of 101 samples are bad, more than max_bad_rate=0.05: "):
        data(["verify", str(folder), "workers=1", f"out={tmp_path}/report"])
    assert report(tmp_path / "report")[0]["corrupt"] == 8


def test_each_caption_and_class_is_checked(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "s", samples=8)
    with tarfile.open(folder / "more.tar", "w") as shard:
        add(shard, "one_empty.jpg", jpeg("red"))
        add(shard, "one_empty.json", json.dumps({"captions": ["a red picture", " "]}).encode())  # the other is used
        add(shard, "all_empty.jpg", jpeg("red"))
        add(shard, "all_empty.json", json.dumps({"captions": ["", " "]}).encode())
    data(["verify", str(folder), "workers=1", "captions=random", "max_bad_rate=1"])
    assert report(folder)[1] == ["more.tar:all_empty: empty caption"]
    classes = tmp_path / "classes"
    classes.mkdir()
    with tarfile.open(classes / "0.tar", "w") as shard:
        for key, text in (("a", b"3"), ("b", b"three")):
            add(shard, f"{key}.png", jpeg("red"))
            add(shard, f"{key}.cls", text)
        add(shard, "README.txt", b"about this set")
    data(["verify", str(classes), "workers=1", "max_bad_rate=1"])
    assert report(classes)[1] == ["0.tar:README lacks image, cls", "0.tar:b: .cls is not a number"]
