"""`clipx data`: training uses the written index; printed counts are correct."""

import tarfile
from pathlib import Path

import pytest

from cli.data import data
from clipx.data.shards import tar
from clipx.data.shards.reader import Shards
from clipx.errors import UserError
from tests.helpers.folder import add, jpeg, write_shards


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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "`clipx data` needs a command; allowed: index, keywords"),
        ("indx x", "did you mean 'index'"),
        ("index", "`clipx data index` needs FOLDER"),
        ("index nowhere", "no folder nowhere"),
        ("keywords x digits=maybe", "digits=maybe must be true or false"),
        ("keywords x digit=true", "did you mean 'digits'"),
        ("make", "`clipx data make` needs one of cc3m, cc12m, datacomp_small"),
        ("make cc13m", "did you mean 'cc3m'"),
        ("make cc3m", "Train_GCC-training.tsv from ai.google.com"),
        ("make cc3m urls=x root=y size=big", "size=big must be a whole number"),
        ("make cc3m urls=nowhere root=y", "urls=nowhere is missing; to get the list: Train_GCC"),
        ("pull", "`clipx data pull` needs one of cifar10, cifar100"),
        ("pull cifar10", "clipx data pull cifar10 needs root=DIR"),
        ("pull cifra10 root=x", "did you mean 'cifar10'"),
        ("pull mmvp root=x", "mmvp cannot be pulled; it comes from `hf download"),
        ("verify", "`clipx data verify` needs FOLDER"),
        ("verify nowhere", "no folder nowhere"),
        ("verify x max_bad_rate=5", "max_bad_rate=5 is out of range; allowed: 0..1"),
        ("verify x worker=2", "did you mean 'workers'"),
    ],
)
def test_mistakes_are_refused(line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        data(line.split())


@pytest.mark.real_data
def test_a_fifth_of_flickr8k_captions_has_one_number_word(real_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data(["keywords", str(real_data / "flickr8k" / "dev"), "captions=random"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    labelled = sum(int(row[-2].replace(",", "")) for row in rows[:-2])
    assert 120 < labelled < 260  # about 19% of 1,000 captions; a caption with two number words has no label
