"""Training step of weighted point sets against a CLIP step on the same towers: `make bench-wpse`.

    python -m tests.bench.wpse [rounds] [base | small | both]      default: 5 both

`base` is ViT-B/16 with its text tower at batch size 8, `small` the small towers at 64; D = 1024. Each row gives wall
and CPU milliseconds of a step and memory, each followed by its ratio to CLIP. Target for ViT-B/16: a ratio of at most
1.10 (claim 5.7). The small towers have no target, since the kernel is a larger share of their step.

The models take turns; times are medians without the first round. Memory is measured in a separate process: the largest
resident size in three steps minus the size after the model is built (Linux only).
"""

import statistics
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import torch

from clipx.config.schema import (
    ImageTowerConfig,
    ModelConfig,
    PointsConfig,
    RunConfig,
    TemperatureConfig,
    TextTowerConfig,
    TrainConfig,
)
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Progress
from tests.bench.loss import status

CASES = {"base": ("open_clip:ViT-B-16", 8), "small": ("open_clip:mini-vit-48", 64)}
ARMS = ("clip", "gaussian", "imq")  # CLIP and the kernels of the point sets


def parts(case: str, arm: str) -> TrainComponents:
    """Build the model and its optimizer with the paper's temperature."""
    tower, batch_size = CASES[case]
    points = PointsConfig(kernel="none" if arm == "clip" else arm)
    config = RunConfig(
        name="bench",
        recipe="bench",
        model=ModelConfig(image=ImageTowerConfig(name=tower), text=TextTowerConfig(name=tower), points=points),
        objective={"clip": {}},
        temperature=TemperatureConfig(parameterisation="identity", min_scale=1.0),
        train=TrainConfig(epochs=1, batch_size=batch_size),
    )
    return build_components(config, torch.device("cpu"), 1000, "bench")


def batch(case: str, p: TrainComponents) -> Batch:
    """Random pairs; texts of twelve words, so that most tokens are padding, as in captions."""
    size, inputs = CASES[case][1], p.state.model.inputs
    text = torch.zeros(size, inputs.context_length, dtype=torch.int64)
    text[:, 0], text[:, 1:13], text[:, 13] = 49406, torch.randint(1, 49000, (size, 12)), 49407
    image = torch.randn(size, 3, inputs.image_size, inputs.image_size)
    return Batch(torch.arange(size), image, text, torch.zeros(size, dtype=torch.int64))


def step(case: str, p: TrainComponents, number: int) -> tuple[float, float]:
    """Return wall and CPU seconds of one training step."""
    data = batch(case, p)
    wall, cpu = time.perf_counter(), time.process_time()
    train_step(p, data, Progress(step=number, total_steps=1000, epoch=0, total_epochs=1))
    return time.perf_counter() - wall, time.process_time() - cpu


def peak(case: str, arm: str) -> float:
    """Return the peak extra memory of three training steps in MiB; must run in a new process."""
    p = parts(case, arm)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    for number in range(3):
        step(case, p, number)
    return (status("VmHWM") - before) / 1024


def compare(case: str, rounds: int) -> None:
    """Print one line per arm."""
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        memory = {arm: pool.apply(peak, (case, arm)) for arm in ARMS}
    made = {arm: parts(case, arm) for arm in ARMS}
    times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
    for turn in range(rounds + 1):
        for arm in ARMS if turn % 2 else ARMS[::-1]:
            taken = step(case, made[arm], turn)
            if turn:
                times[arm].append(taken)
    tower, size = CASES[case]
    print(f"{tower}, B = {size}, {torch.get_num_threads()} threads, median of {rounds}")
    print(f"{'':12}{'ms':>9}{'ratio':>7}{'CPU ms':>9}{'ratio':>7}{'MiB':>8}{'ratio':>7}{'parameters':>12}")
    for arm in ARMS:
        cells = ""
        for clock in (0, 1):
            ratio = statistics.median(a[clock] / c[clock] for a, c in zip(times[arm], times["clip"], strict=True))
            cells += f"{1e3 * statistics.median(t[clock] for t in times[arm]):9.0f}{ratio:7.2f}"
        count = sum(p.numel() for p in made[arm].state.model.parameters())
        print(f"{arm:12}{cells}{memory[arm]:8.0f}{memory[arm] / memory['clip']:7.2f}{count / 1e6:10.2f} M")


def main(rounds: int = 5, which: str = "both") -> None:
    """Print the chosen cases."""
    for case in CASES if which == "both" else (which,):
        compare(case, rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2] if len(sys.argv) > 2 else "both")
