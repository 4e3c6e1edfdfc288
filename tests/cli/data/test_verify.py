"""`clipx data verify` names all corrupt samples and no intact sample."""

import json
import tarfile
from pathlib import Path

import pytest

from cli.data import data
from clipx.errors import UserError
from tests.helpers.folder import add, add_bad_samples, jpeg, write_shards


def report(folder: Path) -> tuple[dict[str, object], list[str]]:
    return json.loads((folder / "verify.json").read_text()), (folder / "verify.txt").read_text().splitlines()


@pytest.mark.parametrize("workers", [1, 2])
def test_every_kind_of_damage_is_named(tmp_path: Path, workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_shards(tmp_path / "s", samples=89)
    add_bad_samples(folder)
    data(["verify", str(folder), f"workers={workers}", "max_bad_rate=0.5"])
    content, lines = report(folder)
    assert (content["shards"], content["samples"], content["corrupt"], content["index_problems"]) == (8, 98, 8, 4)
    corrupt = {line.split(":")[1] for line in lines[4:]}
    assert corrupt == {"truncated", "empty_text", "blank_text", "zeros", "empty", "extension", "bomb", "latin"}
    assert sum("cut.tar" in line for line in lines[:4]) == 2  # the truncated shard, and its sample without an image
    assert sum(line.startswith("corrupt.tar:no_text") for line in lines[:4]) == 1
    printed = capsys.readouterr().out
    assert f"98 samples of 8 shards read with {workers} processes" in printed
    assert "8 corrupt, 4 left out by the index" in printed


def test_too_much_damage_is_an_error_after_the_report_is_written(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "s", samples=16)
    add_bad_samples(folder)
    with pytest.raises(UserError, match=r"12 of 29 samples are bad, more than data.max_bad_rate=0.05: "):
        data(["verify", str(folder), "workers=1", f"out={tmp_path}/report"])
    assert report(tmp_path / "report")[0]["corrupt"] == 8 and not (folder / "verify.json").exists()


def test_a_fractional_number_of_processes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"workers=0.5 must be a whole number"):
        data(["verify", str(tmp_path), "workers=0.5"])


def test_each_caption_and_class_is_checked(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "s", samples=8)
    with tarfile.open(folder / "more.tar", "w") as shard:
        add(shard, "one_empty.jpg", jpeg("red"))
        add(shard, "one_empty.json", json.dumps({"captions": ["a red picture", " "]}).encode())
    data(["verify", str(folder), "workers=1", "captions=random", "max_bad_rate=1"])
    assert report(folder)[1] == ["more.tar:one_empty: empty caption"]
    classes = tmp_path / "classes"
    classes.mkdir()
    with tarfile.open(classes / "0.tar", "w") as shard:
        for key, text in (("a", b"3"), ("b", b"three")):
            add(shard, f"{key}.png", jpeg("red"))
            add(shard, f"{key}.cls", text)
    data(["verify", str(classes), "workers=1", "max_bad_rate=1"])
    assert report(classes)[1] == ["0.tar:b: .cls is not a number"]


@pytest.mark.real_data
def test_real_photographs_have_no_damage(real_data: Path, tmp_path: Path) -> None:
    data(["verify", str(real_data / "flickr8k" / "dev"), "captions=random", f"out={tmp_path}", "max_bad_rate=0"])
    content, lines = report(tmp_path)
    assert (content["samples"], lines) == (1000, [])
