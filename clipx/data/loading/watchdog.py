"""A loader that hangs, as network file systems do: ended after data.stall_seconds, with the names of what it reads."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from torch.utils.data import get_worker_info

from clipx.errors import Fault

T = TypeVar("T")
WIDTH = 256  # bytes of a name, the rest is cut


class WorkerActivity:
    """What each loader process of this rank reads at the moment, in memory that they share."""

    def __init__(self, workers: int) -> None:
        self.slots = max(1, workers)
        self.names = multiprocessing.Array("c", WIDTH * self.slots, lock=False)

    def note(self, name: str) -> None:
        """By the process that reads it, or this one without loader processes; "" for nothing."""
        info = get_worker_info()
        start = WIDTH * (info.id if info else 0)
        text = name.encode()[: WIDTH - 1] + b"\0"
        self.names[start : start + len(text)] = text

    def now(self) -> list[str]:
        """`process 0: 00003.tar:000123`."""
        cells = [self.names[WIDTH * i : WIDTH * (i + 1)].partition(b"\0")[0] for i in range(self.slots)]
        return [f"process {i}: {cell.decode(errors='replace')}" for i, cell in enumerate(cells) if cell]


def watched(batches: Iterable[T], seconds: float, reading: WorkerActivity) -> Iterator[T]:
    """The same batches.

    Raises:
        Fault: the next one did not come within that time.
    """
    iterator = iter(batches)
    while True:
        try:
            with _alarm(seconds, reading):
                batch = next(iterator)
        except StopIteration:
            return
        except _Stalled as stalled:
            raise Fault(str(stalled)) from None
        yield batch


class _Stalled(BaseException):
    """No Exception: a source that takes every one for damage would go on with the next sample."""


@contextmanager
def _alarm(seconds: float, reading: WorkerActivity) -> Iterator[None]:
    """A signal, because it also interrupts a read that hangs; only the main thread may have one."""

    def ring(number: int, frame: FrameType | None) -> None:
        where = "; ".join(reading.now()) or "nothing: its processes have not begun"
        raise _Stalled(f"no batch came for data.stall_seconds={seconds:g}; the loader is reading {where}")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def own_group(worker: int) -> None:
    """For each loader process: signals to the run's process group are for the run, which saves, not for its loaders."""
    os.setpgid(0, 0)
