"""The console on which commands print tables and verdicts; progress on stderr: a bar on a terminal, lines elsewhere."""

import os
import sys
import time
from collections.abc import Container, Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from clipx.errors import printable

UNLIMITED = 1000  # characters; wider than any row of a table
# Print texts unchanged: rich would read [NAME] as a style and :NAME: as a picture, and bypass stdout in a notebook.
PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "force_jupyter": False}
# seconds between lines of progress if stderr is not a terminal
ITEMS_EVERY = 10.0
STEPS_EVERY = 5.0


def stdout_console(least: int = 0) -> Console:
    """Return a console for standard output.

    It is as wide as the terminal or as COLUMNS, at least `least` characters. In a pipe or a file, without COLUMNS, rows
    and sentences are not wrapped, so that grep finds whole lines.
    """
    found = Console(**PLAIN)
    fits = found.is_terminal or "COLUMNS" in os.environ
    return Console(width=max(found.width, least) if fits else UNLIMITED, **PLAIN)


def empty_table(columns: Iterable[str], texts: Container[str], title: str = "", caption: str = "") -> Table:
    """Return a table without rows: the columns in `texts` are wrapped, all others hold numbers, right-aligned."""
    table = Table(box=box.SIMPLE, title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in columns:
        is_text = name in texts
        table.add_column(name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    return table


class ProgressBar:
    """Progress of a task, or of several tasks one after the other."""

    def __init__(self, active: bool = True, transient: bool = True) -> None:
        """`active`: if False, print nothing; only one rank should be active. `transient`: remove the bar at the end."""
        self.console = Console(stderr=True, quiet=not active, **PLAIN)
        self.is_bar = sys.stderr.isatty()
        self._printed = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TaskProgressColumn(),  # per cent
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            console=self.console,
            disable=not (active and self.is_bar),
            transient=transient,
        )

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def start(self, description: str, total: int, done: int = 0) -> None:
        """Begin a task of `total` items; `done` items are already finished."""
        self.task = self._bar.add_task(description, total=total, completed=done, status="")
        self._first, self._started, self._shown = done, time.monotonic(), False

    def advance(self, n: int) -> None:
        """Count `n` more items; print a line every 10 s if stderr is not a terminal."""
        self._bar.advance(self.task, n)
        now = time.monotonic()
        if not self.is_bar and now - self._printed >= ITEMS_EVERY:
            self._printed = now
            self.print(self._line())

    def show(self, done: int, status: str) -> None:
        """Set the number of finished items and the text after the bar.

        If stderr is not a terminal, print both at the first call, at the end, and every 5 s between them.
        """
        now, is_first = time.monotonic(), not self._shown
        if is_first:  # leave the first items out of the rate: their time includes the start
            self._first, self._started, self._shown = done, now, True
        self._bar.update(self.task, completed=done, status=status)
        is_last = done == self._bar.tasks[-1].total
        if not self.is_bar and (is_first or is_last or now - self._printed >= STEPS_EVERY):
            self._printed = now
            self.print(f"{self._line()}  {status}")

    def seconds_left(self, done: int) -> float | None:
        """Estimate the seconds left after `done` items, at the rate so far; None if it is unknown."""
        total = int(self._bar.tasks[-1].total or 0)
        if done in (self._first, total):
            return 0.0 if done == total else None
        return (time.monotonic() - self._started) / (done - self._first) * (total - done)

    def _line(self) -> str:
        """Return `step 30/100 (30%), 58 s left`."""
        task = self._bar.tasks[-1]
        done, total = int(task.completed), int(task.total or 0)
        left = self.seconds_left(done)
        return f"{task.description} {done}/{total} ({done / total:.0%})" + (f", {duration(left)} left" if left else "")

    def print(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(printable(text), soft_wrap=True)


def duration(seconds: float | None) -> str:
    """Format a duration: `58 s`, `2 min 5 s`, `3 h 7 min`; None is "-"."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
