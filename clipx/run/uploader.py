"""Checkpoints go to the second place by a thread, while training goes on."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from clipx.errors import one_line
from clipx.run.remote import RemoteCheckpointStore

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between attempts; each is twice the one before
LAST_ATTEMPTS = 4  # once the run is over, so that it comes to an end


class CheckpointUploader:
    """A copy that fails is said and tried again until there is a newer checkpoint; it never stops the run."""

    def __init__(self, place: RemoteCheckpointStore, info: Callable[[str], None]) -> None:
        self.place, self.info = place, info
        self.busy: Path | None = None  # the checkpoint that is being read
        self.waiting: SimpleQueue[Path | None] = SimpleQueue()  # None: no more will come
        self.ending = threading.Event()
        self.thread: threading.Thread | None = None

    def add(self, checkpoint: Path) -> None:
        """Copies it soon; returns at once."""
        if self.thread is None:  # not before: a process with threads is better not forked, as the loader does
            self.thread = threading.Thread(target=self._work, name="copies", daemon=True)
            self.thread.start()
        self.waiting.put(checkpoint)

    def end(self) -> None:
        """No more will be added; returns at once."""
        self.ending.set()
        self.waiting.put(None)

    def ended(self, seconds: float) -> bool:
        """Whether all are there or were given up, or will be within that time; after `end`."""
        if self.thread:
            self.thread.join(seconds)
        return self.thread is None or not self.thread.is_alive()

    def _work(self) -> None:
        while (checkpoint := self.waiting.get()) is not None:
            self.busy = checkpoint
            self._copy(checkpoint)
            self.busy = None

    def _copy(self, checkpoint: Path) -> None:
        pause, last = FIRST_PAUSE, 0
        while checkpoint.exists():  # else it was removed while it waited
            try:
                self.place.put(checkpoint)
                return
            except Exception as error:  # every file system has its own kinds
                ending = self.ending.is_set()
                last += ending
                newer = self.waiting.qsize() > ending  # at the end None waits as well
                given_up = newer or last == LAST_ATTEMPTS
                then = "given up" if given_up else f"trying again in {pause:.0f} s"
                self.info(f"{checkpoint.name} was not copied to {self.place.root}: {one_line(error)}; {then}")
            if given_up:
                return
            if ending:
                time.sleep(pause)
            elif self.ending.wait(pause):
                pause = FIRST_PAUSE
            pause = min(2 * pause, LONGEST_PAUSE)
