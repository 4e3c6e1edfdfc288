"""The lines that `clipx report` prints on the terminal after it has written a report."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from cli.report.command import report
from cli.settings.compose import compose_run
from clipx.errors import UserError
from tests.helpers import synthetic


@pytest.mark.parametrize(("objective", "folder"), [("clip", "runs"), ("siglip", "my runs")])
def test_a_report_of_one_run_ends_with_the_command_of_one_to_compare(
    objective: str, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {"objective": {objective: {}}}
    synthetic.write(tmp_path / folder, synthetic.run("demo", "", 4, {}, [{"step": 1, "loss": 1.0}], settings))
    report([str(tmp_path / folder), f"out={tmp_path / 'out'}"])
    line = capsys.readouterr().err
    command = line.removeprefix("to compare: ").partition(",")[0]
    other = compose_run(shlex.split(command.removeprefix("clipx train ")))
    assert (other.recipe, other.seed) == ("demo", 4) and other.objective != settings["objective"]
    assert shlex.split(line.partition("and ")[2]) == ["clipx", "report", "compare", str(tmp_path / folder)]


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
