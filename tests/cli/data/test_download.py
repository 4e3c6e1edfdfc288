"""`clipx data make` gives img2dataset the right options and list; without a network, `make` and `pull` fail."""

import csv
import json
import os
import re
import shlex
import socket
from pathlib import Path
from urllib.error import URLError

import pytest
from pyarrow import csv as arrow

import cli.data as download
from cli.data import data
from clipx.errors import UserError
from evaluation.datasets import labelled
from evaluation.datasets.named import NAMED

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
    monkeypatch.setattr(download, "answers", lambda host, port: True)
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


def test_a_dry_run_only_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data(["make", "datacomp_small", "urls=small", f"root={tmp_path}/out", "dry=true"])
    found = options(shlex.split(capsys.readouterr().out)[1:])
    assert (found["--input_format"], found["--caption_col"], found["--url_list"]) == ("parquet", "text", "small")
    assert found["--output_folder"] == f"{tmp_path}/out/shards" and json.loads(found["--save_additional_columns"])
    assert not (tmp_path / "out").exists()


def test_a_list_with_other_columns_is_refused(listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = install(tmp_path, monkeypatch)
    with pytest.raises(UserError, match="is not the list of cc12m: row 1 is not url TAB caption"):
        data(["make", "cc12m", f"urls={listed}", f"root={tmp_path}/out"])
    assert not record.exists() and [*(tmp_path / "out").iterdir()] == []


def test_a_list_that_is_no_parquet_file_and_a_fractional_number_of_processes_are_refused(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, call = install(tmp_path, monkeypatch), ["make", "datacomp_small", f"urls={listed}", f"root={tmp_path}/out"]
    with pytest.raises(UserError, match=r"list.tsv is no Parquet file with a column url"):
        data(call)
    with pytest.raises(UserError, match=r"processes=2.5 must be a whole number"):
        data([*call, "processes=2.5"])
    assert not record.exists()


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
    monkeypatch.setattr(download, "getproxies", dict)
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


def test_the_documentation_lists_the_sets_that_can_be_pulled() -> None:
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    sentence = page.partition("`pull` downloads")[2].partition(".")[0]
    assert re.findall(r"`(\w+)`", sentence) == sorted(labelled.DOWNLOADS)
    assert set(labelled.DOWNLOADS) < set(NAMED)


def test_pull_downloads_into_root_and_without_a_network_raises_a_user_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline(root: str) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setitem(labelled.DOWNLOADS, "cifar10", offline)
    with pytest.raises(UserError, match=r"cifar10 was not downloaded: .*Name or service not known"):
        data(["pull", "cifar10", f"root={tmp_path}"])
    got: list[str] = []
    monkeypatch.setitem(labelled.DOWNLOADS, "cifar10", got.append)
    data(["pull", "cifar10", f"root={tmp_path}"])
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
