"""Tables in a pipe keep one line per row, COLUMNS limits the width, brackets are text; progress every 10 seconds."""

import sys

import pytest
from rich.table import Table

from clipx.utils.terminal import ProgressBar, empty_table, stdout_console


def test_a_row_is_one_line_in_a_pipe_and_columns_limits_the_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table("name", "description")
    table.add_row("x" * 60, "word " * 40)
    monkeypatch.delenv("COLUMNS", raising=False)
    stdout_console().print(table)
    assert sum("word" in line for line in capsys.readouterr().out.splitlines()) == 1
    monkeypatch.setenv("COLUMNS", "100")
    stdout_console().print(table)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100
    monkeypatch.setenv("COLUMNS", "20")
    assert stdout_console(least=50).width == 50


def test_brackets_and_colons_are_text_in_tables_and_beside_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    texts = ["set [a]", "title [b]", "[no interval]", "csv:data[/v2]/x.csv :heart:"]
    table = empty_table(texts[:1], texts[:1], title=texts[1], caption=texts[2])
    table.add_row(texts[3])
    stdout_console().print(table)
    printed = capsys.readouterr().out
    assert all(text in printed for text in texts)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ProgressBar(transient=False) as bar:
        bar.start("csv:data[/v2]/x.csv [old]", total=1)
        bar.advance(1)
    assert "csv:data[/v2]/x.csv [old]" in capsys.readouterr().err


def test_items_are_printed_every_10_seconds_and_steps_first_last_and_every_5_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("clipx.utils.terminal.time.monotonic", lambda: clock[0])
    with ProgressBar() as bar:
        bar.start("images", total=100)
        for _ in range(6):
            clock[0] += 4
            bar.advance(10)
        bar.start("step", total=100)
        for step in range(10, 101, 10):
            clock[0] += 2
            bar.show(step, "")
    # some versions of rich end with an empty line
    images, others, *steps = [line for line in capsys.readouterr().err.splitlines() if line]
    assert (images, others) == ("images 30/100 (30%), 28 s left", "images 60/100 (60%), 16 s left")
    assert [line.split()[1] for line in steps] == ["10/100", "40/100", "70/100", "100/100"]
