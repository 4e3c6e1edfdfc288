"""How far an extraction is and how long it will still take: a bar on a terminal, a line now and then in a file."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

EVERY = 30.0  # seconds between lines where there is no terminal


class Count:
    """Counts embeddings of one request after the other; silent where `active` is false."""

    def __init__(self, active: bool = True) -> None:
        self.lines = active and not sys.stderr.isatty()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not active or self.lines,
            transient=True,
        )
        self.started = self.said = time.monotonic()
        self.task = TaskID(0)

    def __enter__(self) -> "Count":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def start(self, what: str, total: int) -> None:
        """Begins a new count up to `total`."""
        self.started = self.said = time.monotonic()
        self.task = self.bar.add_task(what, total=total)

    def advance(self, n: int) -> None:
        """`n` more are done."""
        self.bar.advance(self.task, n)
        now = time.monotonic()
        if self.lines and now - self.said >= EVERY:
            self.said = now
            task = self.bar.tasks[-1]
            total = int(task.total or 0)
            left = (now - self.started) / max(task.completed, 1) * (total - task.completed)
            print(f"{task.description} {int(task.completed)}/{total}, {left:.0f} s left", file=sys.stderr, flush=True)
