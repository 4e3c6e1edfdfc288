"""Faults of the loader: bad samples, a timeout that names the samples being read, and loader processes that are killed.

Without the timeout, a run would wait for ever when a network file system hangs.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TypeVar

from torch.utils.data import get_worker_info

from clipx.errors import Fault, UserError
from clipx.utils.device import keep_freed_memory

LOGGED = 20  # number of bad samples that a run logs by name; it only counts the others


class TooManyBadSamples(UserError):
    """Too many samples are bad to continue; `names` has the location and the error of each bad sample found."""

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = list(names)


class BadSampleFile:
    """RUN/bad_samples.txt: one line per bad sample, even if the sample recurs in later epochs or after a resume."""

    def __init__(self, run: Path) -> None:
        self.path = run / "bad_samples.txt"
        self.known = set(self.path.read_text("utf-8", "replace").splitlines()) if self.path.is_file() else set()

    def add(self, bad: list[str]) -> list[str]:
        """Append the new bad samples, and return log messages: the first LOGGED names of a run, then only counts."""
        lines = (" ".join(b.encode(errors="backslashreplace").decode().split()) for b in bad)  # as the file holds them
        new = [line for line in dict.fromkeys(lines) if line not in self.known]
        messages = [f"left out: {line}" for line in new[: max(0, LOGGED - len(self.known))]]
        self.known.update(new)
        if new:
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in new)
        if len(messages) < len(new):
            more = len(new) - len(messages)
            messages.append(f"left out: {more} more samples, {len(self.known)} in total; all are in {self.path}")
        return messages


@contextmanager
def listed_bad_samples(run: Path) -> Iterator[None]:
    """Add the samples of TooManyBadSamples to RUN/bad_samples.txt, because the run ends before it logs them."""
    try:
        yield
    except TooManyBadSamples as error:
        file = BadSampleFile(run)
        file.add(error.names)
        raise UserError(f"{error}; all bad samples found are listed in {file.path}") from error


@dataclass
class BadSampleCounter:
    """Count of the samples seen while training, and of the bad ones among them."""

    limit: float  # data.max_bad_rate
    min_seen: int  # number of samples before the share of bad ones is checked
    seen: int = 0
    bad: int = 0
    names: dict[str, None] = field(default_factory=dict)  # bad samples in order of occurrence, without repeats

    def count(self, total: int, bad: list[str], lost: int = 0) -> None:
        """Add `total` samples, of which `bad` are bad, and `lost` more that were never read.

        Raises TooManyBadSamples if the share of bad and lost samples exceeds `limit`.
        """
        self.seen += total + lost
        self.bad += len(bad) + lost
        self.names.update(dict.fromkeys(bad))
        if self.seen >= self.min_seen:
            check_bad_rate(self.limit, self.bad, self.seen, self.names)


def check_bad_rate(limit: float, bad: int, total: int, names: Iterable[str], key: str = "data.max_bad_rate") -> None:
    """Raise TooManyBadSamples if `bad` of `total` samples exceed the share `limit`; the message has the first names."""
    if bad > limit * total:
        listed = list(names)
        more = f"; and {len(listed) - 5} more" if len(listed) > 5 else ""
        raise TooManyBadSamples(
            f"{bad} of {total} samples are bad, more than {key}={limit}: {'; '.join(listed[:5])}{more}",
            listed,
        )


T = TypeVar("T")
NAME_BYTES = 256  # of a sample's location; longer ones are truncated


class WorkerActivity:
    """The location of the sample that each loader process (worker) of this rank is reading, in shared memory."""

    def __init__(self, workers: int) -> None:
        self.slots = max(1, workers)
        self.names = multiprocessing.Array("c", NAME_BYTES * self.slots, lock=False)

    def record(self, name: str) -> None:
        """Set the location of the sample that the calling process is reading; "" for none."""
        info = get_worker_info()
        start = NAME_BYTES * (info.id if info else 0)
        text = name.encode(errors="backslashreplace")[: NAME_BYTES - 1] + b"\0"
        self.names[start : start + len(text)] = text

    def current(self) -> list[str]:
        """Return lines such as `worker 0 is reading 00003.tar:000123`; no line for a process that reads nothing."""
        slots = [self.names[NAME_BYTES * i : NAME_BYTES * (i + 1)].partition(b"\0")[0] for i in range(self.slots)]
        return [f"worker {i} is reading {name.decode(errors='replace')}" for i, name in enumerate(slots) if name]


def with_timeout(batches: Iterable[T], seconds: float, activity: WorkerActivity) -> Iterator[T]:
    """Yield the batches. Raises Fault if a batch takes longer than `seconds`."""
    iterator = iter(batches)
    while True:
        with _alarm(seconds, activity):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch


class _Stalled(BaseException):
    """Loader timeout. Not an Exception, because the decoders report every Exception as a bad sample."""


@contextmanager
def _alarm(seconds: float, activity: WorkerActivity) -> Iterator[None]:
    """Raise Fault if the `with` block takes longer than `seconds`. Outside the main thread, do nothing.

    A signal ends the block, because signals also interrupt a hanging read. Only the main thread can handle signals.
    There is a signal after each half of the time, and only the second one ends the block, because a process that was
    suspended for longer than `seconds` gets a single signal when it continues.
    """
    signals = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        if signals < 2:
            return
        reading = "; ".join(activity.current()) or "no worker is reading a sample (not started, or busy after the read)"
        raise _Stalled(f"no batch came for data.stall_seconds={seconds:g}; {reading}")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds / 2, seconds / 2)
    try:
        yield
    except _Stalled as stalled:
        raise Fault(str(stalled)) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def explain_ended_worker() -> Iterator[None]:
    """Raise Fault if a loader process ends. torch's signal handler may report this anywhere in the block."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker (pid"):
            raise
        raise Fault(f"{str(error).splitlines()[0]}; if memory was short, use fewer data.workers") from error


def start_worker(worker: int) -> None:
    """Move a loader process into a new process group, and let it reuse freed memory (for DataLoader's worker_init_fn).

    A signal to the run's process group must not end the loader processes before the run has saved a checkpoint.
    """
    os.setpgid(0, 0)
    keep_freed_memory()
