"""`clipx report regimes` in the terminal and as Markdown."""

from pathlib import Path

import pytest

from cli.report.command import report
from clipx.errors import UserError
from tests.helpers.regime_runs import CLEAN, finished


def test_the_table_fits_eighty_columns_and_the_page_names_the_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    finished(tmp_path, *CLEAN, "data.scenes.contents=1")
    report(["regimes", str(tmp_path / "runs"), f"out={tmp_path / 'out'}"])
    printed = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in printed if str(tmp_path) not in line)
    (steps,) = [line.split() for line in printed if line.strip().startswith("steps")]
    assert steps == ["steps", "3,125", "20", "1/156", "▼"]
    page = (tmp_path / "out" / "regimes.md").read_text()
    assert "## counting_mini" in page and "beside paper 2: tables 1 and 2, DataComp-small" in page
    assert "|  | paper 2 | counting_mini | factor | source |" in page
    assert "| epochs | 1 | 0.0213 | 1/46.9 ▼ | 12.8M samples of 12.8M pairs" in page
    assert "| text tokens | 77 | 32 | 1/2.41 | " in page, "a factor below three has a mark"
    assert "| final training loss | not given | 1 |  |  |" in page
    assert "| false negatives in a batch | not given | 4,032 |  |  |" in page


def test_a_recipe_of_no_paper_has_an_empty_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(tmp_path, recipe="recipe=demo")
    report(["regimes", str(tmp_path / "runs")])
    page = (tmp_path / "runs" / "regimes.md").read_text()
    assert "| steps |  | 20 |  |  |" in page and "not given" not in page.split("## demo")[1]


def test_runs_without_training_are_refused(tmp_path: Path) -> None:
    finished(tmp_path, "train.samples=0", log=[])
    with pytest.raises(UserError, match="has a logged training step"):
        report(["regimes", str(tmp_path)])
