"""The lines that `clipx report` prints on the terminal after it has written a report."""

from pathlib import Path

import pytest

from cli.report.command import report
from clipx.errors import UserError
from tests.helpers import synthetic


def test_a_report_of_several_methods_ends_with_the_command_that_ranks_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        synthetic.write(tmp_path / "runs", synthetic.run("demo", name, 0, {}, [{"step": 1, "loss": 1.0}]))
    report([str(tmp_path / "runs")])
    assert capsys.readouterr().err == f"to rank them: clipx report compare {tmp_path / 'runs'}\n"


def test_a_folder_that_does_not_exist_is_answered_with_the_nearest_run_before_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for recipe in ("demo", "wpse_mini"):
        synthetic.write(Path("runs"), synthetic.run(recipe, "", 0, {}))
    with pytest.raises(UserError) as raised:
        report(["runs/dmo"])
    near, newest = (str(raised.value).find(words) for words in ("did you mean 'runs/demo'", "runs/wpse_mini/s0"))
    assert 0 < near < newest
