"""Without a terminal, rank 0 prints a line of progress every 30 seconds; other ranks print nothing."""

import pytest

from clipx.utils.terminal import ProgressBar

LINES = ["images 30/100, 70 s left", "images 60/100, 40 s left", "images 90/100, 10 s left"]


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
