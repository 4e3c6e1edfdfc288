"""`clipx data`: the index, keywords, img2dataset's options and list, downloads, and the check of shards."""

import csv
import json
import os
import shlex
import socket
import tarfile
from pathlib import Path
from urllib.error import URLError

import pytest
from pyarrow import csv as arrow

from cli import data as command
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


def test_captions_are_counted_per_keyword(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_shards(tmp_path / "s", samples=24)
    data(["keywords", str(folder), "keywords=[red,blue,dog]"])
    rows = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows == {"red": "4", "blue": "4", "dog": "0", "no": "label", "unreadable": "0"}


@pytest.mark.real_data
def test_a_fifth_of_flickr8k_captions_has_one_number_word(real_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data(["keywords", str(real_data / "flickr8k" / "dev"), "captions=random"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    labelled = sum(int(row[-2].replace(",", "")) for row in rows[:-2])
    assert 120 < labelled < 260  # about 19% of 1,000 captions; a caption with two number words has no label


ROWS = [
    ('a "quoted" dog', "http://a.example/1.jpg"),
    ('"all of it"', "https://b.example/2.jpg"),
    ("it's", "http://c/3"),
]
FAKE = """#!/bin/sh
printf '%s\\n' "$@" > {record}
mkdir -p "{root}/train"
echo '{{"count": 3, "successes": {loaded}}}' > "{root}/train/00000_stats.json"
exit {code}
"""


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Write a list like CC3M's: no header, no quoting."""
    path = tmp_path / "list.tsv"
    path.write_text("".join(f"{caption}\t{url}\n" for caption, url in ROWS))
    return path


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: int = 2, code: int = 0) -> Path:
    """Put on PATH a fake img2dataset, which records its arguments; let all hosts answer; return the record's path."""
    program, record = tmp_path / "bin" / "img2dataset", tmp_path / "record"
    program.parent.mkdir()
    program.write_text(FAKE.format(record=record, root=tmp_path / "out", loaded=loaded, code=code))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(command, "answers", lambda host, port: True)
    return record


def options(words: list[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))


def test_img2dataset_gets_the_columns_by_name(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    record, root = install(tmp_path, monkeypatch), tmp_path / "out"
    data(["make", "cc3m", f"urls={listed}", f"root={root}", "processes=3", "size=288"])
    printed = capfd.readouterr().out.splitlines()
    words = record.read_text().splitlines()
    assert shlex.split(printed[0]) == ["img2dataset", *words]
    assert options(words) == {
        "--url_list": f"{root}/cc3m_img2dataset.tsv", "--input_format": "tsv",
        "--url_col": "url", "--caption_col": "caption",
        "--output_format": "webdataset", "--output_folder": f"{root}/train", "--number_sample_per_shard": "10000",
        "--image_size": "288", "--resize_mode": "keep_ratio", "--resize_only_if_bigger": "True",
        "--processes_count": "3", "--thread_count": "64",
    }  # fmt: skip
    assert printed[1].startswith("3 rows in") and printed[2].startswith("2 of 3 images are in")
    # img2dataset reads the list with pyarrow
    table = arrow.read_csv(root / "cc3m_img2dataset.tsv", parse_options=arrow.ParseOptions(delimiter="\t"))
    assert list(zip(table["caption"].to_pylist(), table["url"].to_pylist(), strict=True)) == ROWS


def test_a_list_with_other_columns_is_refused(listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = install(tmp_path, monkeypatch)
    with pytest.raises(UserError, match="is not the list of cc12m: row 1 is not url TAB caption"):
        data(["make", "cc12m", f"urls={listed}", f"root={tmp_path}/out"])
    assert not record.exists() and [*(tmp_path / "out").iterdir()] == []


def test_each_failure_has_its_own_message(listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = ["make", "cc3m", f"urls={listed}", f"root={tmp_path}/out"]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="pipx install img2dataset"):
        data(call)
    monkeypatch.setenv("PATH", os.defpath)
    with monkeypatch.context() as patch:
        install(tmp_path, patch, code=3)
        with pytest.raises(UserError, match="exit code 3"):
            data(call)
        program = tmp_path / "bin" / "img2dataset"
        program.write_text(program.read_text().replace("exit 3", "exit 0").replace('"successes": 2', '"successes": 0'))
        with pytest.raises(UserError, match="downloaded none of 3 images"):
            data(call)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.defpath}")
    for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setattr(command, "getproxies", dict)
    monkeypatch.setattr(socket, "create_connection", _no_network)
    with pytest.raises(UserError, match=r"no network: none of a.example, b.example, c answers"):
        data(call)
    listed.write_text("")
    with pytest.raises(UserError, match=r"cc3m_img2dataset.tsv lists no URL; to get the list: Train_GCC"):
        data(call)
    listed.write_text(
        "a caption\thttp://a.example:80a/x.jpg\na caption\thttp://[abc\na caption\thttp://d.example/x.jpg\n"
    )
    with pytest.raises(UserError, match=r"no network: none of d\.example answers"):
        data(call)


def _no_network(*_: object, **__: object) -> None:
    raise OSError("Name or service not known")


def test_pull_downloads_into_root_and_without_a_network_raises_a_user_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline(root: str) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setitem(torchvision_sets.DOWNLOADS, "cifar10", offline)
    with pytest.raises(UserError, match=r"cifar10 was not downloaded: .*Name or service not known"):
        data(["pull", "cifar10", f"sets={tmp_path}"])
    got: list[str] = []
    monkeypatch.setitem(torchvision_sets.DOWNLOADS, "cifar10", got.append)
    data(["pull", "cifar10", f"sets={tmp_path}"])
    assert got == [str(tmp_path)] and "datasets=[cifar10]" in capsys.readouterr().out


@pytest.mark.real_data
def test_every_row_of_the_published_cc3m_list_is_kept(
    real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = next((real_data / "cc3m").glob("*.tsv"))
    install(tmp_path, monkeypatch)
    data(["make", "cc3m", f"urls={listed}", f"root={tmp_path}/out"])
    with (tmp_path / "out" / "cc3m_img2dataset.tsv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t")
    assert header == ["caption", "url"] and len(rows) == 15_814
    assert rows == [line.split("\t") for line in listed.read_text(encoding="utf-8").splitlines()]
    table = arrow.read_csv(tmp_path / "out" / "cc3m_img2dataset.tsv", parse_options=arrow.ParseOptions(delimiter="\t"))
    assert table["caption"].to_pylist() == [caption for caption, _ in rows]


def report(folder: Path) -> tuple[dict[str, object], list[str]]:
    return json.loads((folder / "verify.json").read_text()), (folder / "verify.txt").read_text().splitlines()


@pytest.mark.parametrize("workers", [1, 2])
def test_every_kind_of_damage_is_named(tmp_path: Path, workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_shards(tmp_path / "s", samples=89)
    add_bad_samples(folder)
    data(["verify", str(folder), f"workers={workers}", "max_bad_rate=0.5"])
    content, lines = report(folder)
    assert (content["shards"], content["samples"], content["corrupt"], content["index_problems"]) == (8, 98, 8, 3)
    corrupt = {line.split(":")[1] for line in lines[3:]}
    assert corrupt == {"truncated", "empty_text", "blank_text", "zeros", "empty", "extension", "bomb", "latin"}
    assert sum("cut.tar" in line for line in lines[:3]) == 1  # the cut, and not again its sample
    assert sum(line.startswith("corrupt.tar:no_text") for line in lines[:3]) == 1
    printed = capsys.readouterr().out
    assert f"98 samples of 8 shards read with {workers} processes" in printed
    assert "8 corrupt, 3 left out by the index" in printed


def test_too_much_damage_is_an_error_after_the_report_is_written(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "s", samples=16)
    add_bad_samples(folder)
    with pytest.raises(UserError, match=r"11 of 28 samples are bad, more than data.max_bad_rate=0.05: "):
        data(["verify", str(folder), "workers=1", f"out={tmp_path}/report"])
    assert report(tmp_path / "report")[0]["corrupt"] == 8 and not (folder / "verify.json").exists()


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
    data(["verify", str(classes), "workers=1", "max_bad_rate=1"])
    assert report(classes)[1] == ["0.tar:b: .cls is not a number"]
