"""CheckpointUploader: uploads checkpoints to remote storage in a thread, while training continues."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from clipx.errors import one_line
from clipx.run.remote import RemoteCheckpointStore

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between attempts; the pause doubles up to LONGEST_PAUSE
LAST_ATTEMPTS = 4  # attempts after the run has ended


class CheckpointUploader:
    """Upload queue. Failed uploads are logged and retried until a newer checkpoint is queued; the run continues.

    After the end of the run, an upload is tried at most LAST_ATTEMPTS times.
    """

    def __init__(self, store: RemoteCheckpointStore, info: Callable[[str], None]) -> None:
        self.store, self.info = store, info
        self.current: Path | None = None  # the checkpoint being uploaded
        self.waiting: SimpleQueue[Path | None] = SimpleQueue()  # None: the queue is closed
        self.closed = threading.Event()
        self.thread: threading.Thread | None = None

    def add(self, checkpoint: Path) -> None:
        """Queue a checkpoint, start the thread if needed, and return at once."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._upload_queue, name="uploader", daemon=True)
            self.thread.start()
        self.waiting.put(checkpoint)

    def close(self) -> None:
        """Close the queue and return at once; queued uploads continue."""
        self.closed.set()
        self.waiting.put(None)

    def join(self, seconds: float) -> bool:
        """Wait at most `seconds` (after `close`); return True if every upload has succeeded or was given up."""
        if self.thread:
            self.thread.join(seconds)
        return self.thread is None or not self.thread.is_alive()

    def _upload_queue(self) -> None:
        while (checkpoint := self.waiting.get()) is not None:
            self.current = checkpoint
            self._upload(checkpoint)
            self.current = None

    def _upload(self, checkpoint: Path) -> None:
        pause, last_attempts = FIRST_PAUSE, 0
        while checkpoint.exists():  # it may have been pruned while it waited
            try:
                self.store.upload(checkpoint)
                self.store.prune(checkpoint)
                return
            except Exception as error:  # every file system has its own error types
                closed = self.closed.is_set()
                last_attempts += closed
                newer = self.waiting.qsize() > closed  # a closed queue also holds None
                give_up = newer or last_attempts == LAST_ATTEMPTS
                then = "given up" if give_up else f"trying again in {pause:.0f} s"
                self.info(f"{checkpoint.name} was not copied to {self.store.root}: {one_line(error)}; {then}")
            if give_up:
                return
            if closed:
                time.sleep(pause)
            elif self.closed.wait(pause):  # the run ended during the pause
                pause = FIRST_PAUSE
            pause = min(2 * pause, LONGEST_PAUSE)
