"""Memory stays constant over 2,000 micro-batches."""

import gc
from pathlib import Path

import pytest
import torch

from clipx.training.step import log_row, train_step
from clipx.types import Progress
from tests.helpers import tiny

MICRO_BATCHES, EVERY = 2000, 100  # EVERY: steps between measurements


def resident() -> int:
    """Return the resident memory of this process in bytes (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.long
@pytest.mark.parametrize("accumulation", [1, 2])
def test_memory_does_not_grow_with_the_steps(accumulation: int) -> None:
    config = tiny.settings({"clip": {}, "sogclr": {}})
    config.train.accumulation, config.train.ema = accumulation, 0.99
    components, batch = tiny.components(config), next(tiny.batches(config, 1))
    tensors, memory = [], []
    for step in range(MICRO_BATCHES // accumulation):
        at = Progress(step, MICRO_BATCHES, 0, 1)
        numbers = train_step(components, batch, at)
        if step % EVERY == EVERY - 1:
            log_row(components, numbers, at), components.timer.read()
            gc.collect()
            tensors.append(sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects()))
            memory.append(resident())
    assert len(set(tensors[1:])) == 1, f"tensors alive at every {EVERY}th step: {tensors}"
    half = len(memory) // 2
    assert max(memory[half:]) - max(memory[:half]) < 4 * 2**20, f"bytes at every {EVERY}th step: {memory}"
