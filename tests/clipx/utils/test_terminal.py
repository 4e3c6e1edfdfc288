"""Tables in a pipe keep one line per row, and COLUMNS limits the width; progress is a line every 30 seconds."""

import pytest
from rich.table import Table

from clipx.utils.terminal import ProgressBar, stdout_console

LINES = [
    "images 30/100 (30%), 1 min 10 s left",
    "images 60/100 (60%), 40 s left",
    "images 90/100 (90%), 10 s left",
]  # of rank 0; other ranks print nothing


def lines_of_a_wide_row(capsys: pytest.CaptureFixture[str]) -> list[str]:
    table = Table("name", "description")
    table.add_row("x" * 60, "word " * 40)
    stdout_console().print(table)
    return [line for line in capsys.readouterr().out.splitlines() if "word" in line]


def test_a_row_in_a_pipe_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert len(lines_of_a_wide_row(capsys)) == 1


def test_columns_limits_the_width(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = lines_of_a_wide_row(capsys)
    assert len(lines) > 1 and max(map(len, lines)) <= 100
    monkeypatch.setenv("COLUMNS", "20")
    assert stdout_console(least=50).width == 50


@pytest.mark.parametrize(("active", "expected"), [(True, LINES), (False, [])])
def test_a_line_is_printed_every_30_seconds(
    active: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("clipx.utils.terminal.time.monotonic", lambda: clock[0])
    with ProgressBar(active) as bar:
        bar.start("images", total=100)
        for _ in range(9):
            clock[0] += 10
            bar.advance(10)
    # some versions of rich end with an empty line
    assert [line for line in capsys.readouterr().err.splitlines() if line] == expected


def test_steps_are_printed_first_last_and_every_five_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("clipx.utils.terminal.time.monotonic", lambda: clock[0])
    with ProgressBar() as bar:
        bar.start("step", total=100)
        for step in range(10, 101, 10):
            clock[0] += 2
            bar.show(step, "")
    shown = [line.split()[1] for line in capsys.readouterr().err.splitlines() if line]
    assert shown == ["10/100", "40/100", "70/100", "100/100"]
