"""Measured speed of training: seconds per phase of a step, images per second, time spent waiting for data."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import torch

T = TypeVar("T")
MAX_STEPS = 1000  # StepTimer keeps the times of at most this many steps between two log lines


class StepTimer:
    """Seconds of a step's phases: forward (towers), loss (gather, objective and its gradient), backward, optimizer.

    With train.accumulation > 1 a step passes twice over its micro-batches. Then forward is the first pass, without
    gradients, and backward the second, which repeats the towers' forward. On CUDA, each phase ends with a stream event,
    which does not delay the step; only `read` and `wait` synchronise. Times are device times on CUDA, host times on the
    CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.steps: deque[list[tuple[str, Any]]] = deque(maxlen=MAX_STEPS)  # per step: (phase, end of the phase)

    def start(self) -> None:
        """Start a step."""
        self.steps.append([("", self._now())])

    def end_phase(self, name: str) -> None:
        """Record the end of a phase of the current step."""
        self.steps[-1].append((name, self._now()))

    def read(self) -> dict[str, float]:
        """Return phase -> mean seconds per step since the last call, over at most the last MAX_STEPS steps."""
        self.wait()
        sums: dict[str, float] = {}
        for ends in self.steps:
            for (_, before), (name, end) in pairwise(ends):
                sums[name] = sums.get(name, 0.0) + (before.elapsed_time(end) / 1e3 if self.cuda else end - before)
        means = {name: round(total / len(self.steps), 6) for name, total in sums.items()}
        self.steps.clear()
        return means

    def wait(self) -> None:
        """Wait until the device has done all its work."""
        if self.cuda:
            torch.cuda.synchronize()

    def _now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


class ThroughputMeter:
    """Images per second, share of the time spent waiting for data, and seconds per step.

    These exclude the time until the first batch, when the loader starts; the first `read` returns it separately.
    """

    def __init__(self, timer: StepTimer, gpus: int = 0, at_peak: float | None = None) -> None:
        """`gpus`: number of GPUs, 0 on CPUs; `at_peak`: images/s of one GPU at its peak (`cost.images_at_peak`)."""
        self.timer, self.gpus, self.at_peak = timer, gpus, at_peak
        self.start = time.perf_counter()
        self.first_batch: float | None = None  # seconds until the first batch; None again after it is reported
        self.waited = 0.0  # seconds
        self.images = self.batches = 0

    def timed(self, batches: Iterator[T]) -> Iterator[T]:
        """Yield the batches and add up the seconds spent waiting for them."""
        started, asked = False, time.perf_counter()
        for batch in batches:
            now = time.perf_counter()
            if started:
                self.waited += now - asked
            else:
                started, self.start, self.first_batch = True, now, now - asked
            self.batches += 1
            yield batch
            asked = time.perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the block from the rates, but not the time in which a GPU finishes earlier steps."""
        self.timer.wait()
        before = time.perf_counter()
        yield
        self.start += time.perf_counter() - before

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Do not count the block as waiting for data: in it, the host waits for the GPU."""
        before = time.perf_counter()
        yield
        self.waited -= time.perf_counter() - before

    def read(self) -> dict[str, float | dict[str, float]]:
        """Return rates since the last call: `images_per_s`, `data_wait` (share of the time), `step_s`.

        `step_s` has mean seconds per step: `data` (waiting for data) and the phases of `StepTimer`. The first call also
        returns `first_batch_s`. On GPUs there are also `images_per_s_gpu`, the rate of one, and `mfu`, its share of the
        rate at the peak (model FLOP utilisation).
        """
        elapsed = time.perf_counter() - self.start
        rates: dict[str, float | dict[str, float]] = {
            "images_per_s": round(self.images / elapsed, 1),
            "data_wait": round(self.waited / elapsed, 4),
            "step_s": {"data": round(self.waited / max(1, self.batches), 6), **self.timer.read()},
        }
        if self.gpus:
            of_one = self.images / elapsed / self.gpus
            rates["images_per_s_gpu"] = round(of_one, 1)
            if self.at_peak is not None:
                rates["mfu"] = round(of_one / self.at_peak, 4)
        if self.first_batch is not None:
            rates["first_batch_s"] = round(self.first_batch, 2)
        self.start, self.waited, self.first_batch = time.perf_counter(), 0.0, None
        self.images = self.batches = 0
        return rates
