"""Tables in a pipe keep one line per row; COLUMNS limits the width."""

import pytest
from rich.table import Table

from clipx.utils.terminal import stdout_console


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
