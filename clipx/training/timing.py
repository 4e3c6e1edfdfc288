"""Speed of a run between two lines of the log."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import torch

T = TypeVar("T")
KEPT = 1000  # steps whose laps wait for the next line of the log


class StepTimer:
    """Seconds of a step's phases: forward (towers), loss (gather, objective and its gradient), backward, optimizer.

    Under train.accumulation, forward is the first pass, backward the second. On CUDA a lap's end is an event in the
    stream, which costs the step nothing; they are waited for when the log is written, so phases are the device's time
    there, the host's on a CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.clock = _CudaClock() if device.type == "cuda" else _HostClock()
        self.steps: deque[list[tuple[str, Any]]] = deque(maxlen=KEPT)  # each: ends of its laps

    def start(self) -> None:
        """A step begins."""
        self.steps.append([("", self.clock.now())])

    def end(self, name: str) -> None:
        """A phase ends."""
        self.steps[-1].append((name, self.clock.now()))

    def read(self) -> dict[str, float]:
        """Phase -> mean seconds a step since the last call, of the last KEPT steps at most."""
        self.clock.wait()
        sums: dict[str, float] = {}
        for ends in self.steps:
            for (_, before), (name, now) in pairwise(ends):
                sums[name] = sums.get(name, 0.0) + self.clock.between(before, now)
        means = {name: round(total / len(self.steps), 6) for name, total in sums.items()}
        self.steps.clear()
        return means


class _HostClock:
    def now(self) -> Any:
        return time.perf_counter()

    def wait(self) -> None:
        """Nothing is under way."""

    def between(self, before: Any, now: Any) -> float:
        return float(now - before)


class _CudaClock(_HostClock):
    def now(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def wait(self) -> None:
        torch.cuda.synchronize()

    def between(self, before: Any, now: Any) -> float:
        return float(before.elapsed_time(now)) / 1e3


class ThroughputMeter:
    """Images per second, the share of the time that steps wait for data, and what a step's time goes into.

    All count from the first batch on. What that one takes is the start of the loader, once in a run: it is reported
    by itself, with the first numbers.
    """

    def __init__(self, laps: StepTimer) -> None:
        self.laps = laps
        self.start = time.perf_counter()
        self.first: float | None = None  # seconds until the first batch, until it was read
        self.waited = 0.0
        self.images = self.batches = 0

    def wait(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches, with the time between asking for one and getting it added up."""
        started, asked = False, time.perf_counter()
        for batch in batches:
            now = time.perf_counter()
            if started:
                self.waited += now - asked
            else:
                started, self.start, self.first = True, now, now - asked
            self.batches += 1
            yield batch
            asked = time.perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time spent in the block is excluded from the rates."""
        before = time.perf_counter()
        yield
        self.start += time.perf_counter() - before

    def read(self) -> dict[str, float | dict[str, float]]:
        """Since the last call: `images_per_s`, `data_wait` (a share), `step_s`; in the first one also `first_batch_s`.

        `step_s` is the mean seconds of a step in data (waiting for it) and in the phases of `StepTimer`.
        """
        elapsed = time.perf_counter() - self.start
        rates: dict[str, float | dict[str, float]] = {
            "images_per_s": round(self.images / elapsed, 1),
            "data_wait": round(self.waited / elapsed, 4),
            "step_s": {"data": round(self.waited / max(1, self.batches), 6), **self.laps.read()},
        }
        if self.first is not None:
            rates["first_batch_s"] = round(self.first, 2)
        self.start, self.waited, self.first = time.perf_counter(), 0.0, None
        self.images = self.batches = 0
        return rates
