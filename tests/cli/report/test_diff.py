"""The output of `clipx report diff`: text, HTML page and CSV."""

import csv
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from torch import Tensor

from cli.report.command import report
from evaluation.runner import evaluate
from tests.helpers import fakes


def scaled(encode: Callable[[Tensor], Tensor], factor: int, batch: Tensor) -> Tensor:
    return factor * encode(batch)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Evaluate two models that answer differently on labelled images, captioned images and minimal pairs."""
    specs = [
        fakes.labelled(tmp_path / "things", classes=4, test=40),
        fakes.captioned(tmp_path / "shots", (2, 3) * 6),
        fakes.pairs(tmp_path / "minimal", ("colour", "count") * 10),
    ]
    folders = tmp_path / "runs" / "a", tmp_path / "runs" / "b"
    for folder, sign in zip(folders, (1, -1), strict=True):
        encoder = fakes.encoder(checkpoint=f"c{sign}")
        tasks = ["zeroshot", "retrieval", "pairs"]
        changed = replace(encoder, name=f"model {sign}", image=partial(scaled, encoder.image, sign))
        evaluate(changed, specs, tasks, folder, tmp_path / "features", 8, 0, "cpu")
    return folders


def test_the_table_fits_eighty_columns_and_the_page_shows_pictures_and_labels(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    capsys.readouterr()
    report(["diff", *map(str, runs)])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if str(runs[0]) not in line]
    assert all(len(line) <= 80 for line in lines)
    assert ["text_to_image_recall@1" in line and "[" in line for line in lines].count(True) == 1
    page = (runs[0] / "diff.html").read_text()
    assert page.count("data:image/jpeg;base64,") > 20 and "thing 3" in page and "caption 0 of image" in page
    assert "no pictures" not in page
    with (runs[0] / "diff.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["right"] for row in rows} == {"model 1", "model -1"}
    assert all((row["rank_a"] == "1") == (row["right"] == "model 1") for row in rows if row["task"] != "pairs")
    assert "![image](diff_files/image-" in (runs[0] / "diff.md").read_text()


def test_without_the_evaluated_set_only_the_pictures_are_missing(runs: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "shots")
    fakes.labelled(tmp_path / "things", classes=4, test=44)
    report(["diff", *map(str, runs), f"out={tmp_path / 'out'}"])
    page = (tmp_path / "out" / "diff.html").read_text()
    assert f"no pictures: the images in wds:{tmp_path / 'things'} have changed since the evaluation" in page
    assert f"no pictures: datasets=captions:{tmp_path / 'shots'}" in page
