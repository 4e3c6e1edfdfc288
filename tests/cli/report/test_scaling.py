"""Output and files of `clipx report scaling`, and its error for too few points."""

from pathlib import Path

import pytest

from cli.report.command import report
from clipx.errors import UserError
from tests.helpers.ladder_runs import BOTH
from tests.helpers.synthetic import write


def test_the_tables_fit_a_terminal_and_the_page_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for one in BOTH:
        write(tmp_path / "runs", one)
    report(["scaling", str(tmp_path / "runs"), f"out={tmp_path / 'out'}"])
    output = capsys.readouterr().out
    assert "mine (data 500, width open_clip:a, batch 64): samples at 6 points" in output
    assert all(len(line) <= 100 for line in output.splitlines() if str(tmp_path) not in line)
    names = {path.name for path in (tmp_path / "out").rglob("*")}
    assert {"scaling.html", "scaling.md", "scaling.csv"} <= names
    assert {f"scaling-1-error.{kind}" for kind in ("svg", "pdf", "csv")} <= names


def test_a_ladder_of_three_points_is_refused(tmp_path: Path) -> None:
    for one in BOTH:
        if one.config["train"]["samples"] < 1e5 and one.seed < 1:
            write(tmp_path, one)
    with pytest.raises(UserError, match="no ladder: early has results at 3 of 4 points of samples;"):
        report(["scaling", str(tmp_path)])
    with pytest.raises(UserError, match="no ladder: early has results at 1 of 4 points of width;"):
        report(["scaling", str(tmp_path), "axis=width"])
