"""Growth of memory, tensor count and step time over 2,000 training steps of the mini model: `make bench-leak`.

Measures the resident memory of the process, the number of live tensors and the seconds per step, without the first
tenth of the steps. Prints the median of each, and its least-squares slope per 1,000 steps with a 95% confidence
interval. There is no leak if the interval contains 0, or if the slope is small compared with the median. STEPS in the
environment changes the number of steps.
"""

import ctypes
import gc
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from scipy.stats import linregress, t

from clipx.training.forecast import generated_batch
from clipx.training.step import log_row, train_step
from clipx.types import Progress
from tests.bench.train import CPU, our_components

STEPS, EVERY = int(os.environ.get("STEPS", "2000")), 20  # EVERY: steps between measurements


def resident() -> int:
    """Return the resident bytes of this process (Linux), after returning free memory to the system."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def live_tensors() -> int:
    return sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects())


def show(name: str, unit: str, steps: list[int], values: list[float]) -> None:
    """Print the median and the slope per 1,000 steps with its confidence interval."""
    kept = [(s, v) for s, v in zip(steps, values, strict=True) if s >= STEPS // 10]
    if len({v for _, v in kept}) == 1:
        print(f"{name:8s} {kept[0][1]:.5g} {unit}, constant")
        return
    fit = linregress(*zip(*kept, strict=True))
    half = float(t.ppf(0.975, len(kept) - 2)) * fit.stderr
    slopes = f"{1e3 * fit.slope:+.4g} ({1e3 * (fit.slope - half):+.4g} .. {1e3 * (fit.slope + half):+.4g})"
    print(f"{name:8s} median {statistics.median(v for _, v in kept):.5g} {unit}, per 1,000 steps {slopes}")


def main() -> None:
    torch.set_num_threads(1)
    # a small batch, because a leak grows with the steps, not with the images per step
    components = our_components(replace(CPU, batch=32), torch.device("cpu"))
    batch = generated_batch(components)
    steps: list[int] = []
    memory: list[float] = []
    alive: list[float] = []
    duration: list[float] = []
    for first in range(0, STEPS, EVERY):
        start = time.perf_counter()
        for step in range(first, first + EVERY):
            progress = Progress(step, STEPS, 0, 1)
            numbers = train_step(components, batch, progress)
        log_row(components, numbers, progress)
        components.timer.read()
        duration.append((time.perf_counter() - start) / EVERY)
        gc.collect()
        steps.append(first)
        memory.append(resident() / 2**20)
        alive.append(live_tensors())
    show("memory", "MiB", steps, memory)
    show("tensors", "", steps, alive)
    show("step", "s", steps, duration)


if __name__ == "__main__":
    main()
