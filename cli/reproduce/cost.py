"""`clipx reproduce dry=true`: list the runs with their progress and estimated cost.

The cost (steps, FLOPs, GPU-hours, disk space) is calculated from a run's config.
"""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from cli.reproduce.plan import Options
from clipx import objectives
from clipx.config.presets import num_pairs
from clipx.config.schema import RunConfig
from clipx.data.sampler import pairs_of
from clipx.errors import UserError
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import RunFolder
from clipx.training.cost import FLOAT32_BYTES, StepCost, count_step
from clipx.training.devices import DEVICES, Device
from clipx.training.forecast import TOWER_SHARE, step_time, timed_steps, total_steps
from clipx.training.loader_rate import LoaderRate, loader_rate
from clipx.utils.device import TRAIN_MEMORY_HINT, choose_device, explain_out_of_memory
from clipx.utils.terminal import duration

DEVICE = "H100"  # default of device=
MOST_FLOPS = 200_000_000_000  # of a step that is timed on a CPU: several seconds
TRAINED = ("trained", "finished")  # states in which training is finished
Counts = dict[str, tuple[StepCost, LoaderRate | None]]  # settings -> the FLOPs and the rate of the loaders


@dataclass(frozen=True)
class Cost:
    """The cost of one run."""

    steps: int
    gpu_hours: float
    disk: int  # bytes of the checkpoints it keeps
    loaders: str = ""  # what to change if the loaders are slower than the GPU
    step_flops: int = 0  # of the towers


def estimate(config: RunConfig, device: Device, share: float, known: Counts) -> Cost | None:
    """Estimate the cost of a run on one GPU. Return None if only the data tell how many steps the run has.

    Args:
        share: fraction of the device's peak FLOP/s that a step reaches.
        known: what was counted for other runs; this function adds to it, because counting is slow.

    Raises UserError: unknown towers or objectives.
    """
    train, pairs = config.train, num_pairs(config)
    passes = (train.batch_size, train.accumulation, train.grad_checkpointing)
    key = repr([config.model, [*config.objective], passes, config.data])  # both costs depend on these
    steps = total_steps(config, pairs)
    if steps is None:
        return None
    if key not in known:
        known[key] = count_step(config), loader_rate(config)
    step, loaders = known[key]
    on_gpu = step_time(config, step, 1, device, share).total
    of_step = on_gpu if loaders is None else loaders.step(1, on_gpu)
    columns = objectives.build(config.objective, pairs or 2).columns
    kept = min(train.keep, max(1, -(-steps // train.save_every)))
    kept += (steps // train.keep_every if train.keep_every else 0) + (train.keep_best is not None)
    disk = kept * (checkpoint_bytes(config, step) + FLOAT32_BYTES * len(columns) * (pairs or 0))
    disk -= 0 if train.keep_optimizer else moment_bytes(step)
    changes = "" if loaders is None or of_step == on_gpu else f"(cores: {loaders.cores}); use {loaders.changes}"
    return Cost(steps, steps * of_step / 3600, disk, changes, step.tower_flops)


def checkpoint_bytes(config: RunConfig, step: StepCost) -> int:
    """Return the size of weights, averaged weights and AdamW's moments in float32, without the sample table."""
    return FLOAT32_BYTES * step.num_weights * (1 if config.train.ema is None else 2) + moment_bytes(step)


def moment_bytes(step: StepCost) -> int:
    """Return the size of AdamW's moments in float32."""
    return 2 * FLOAT32_BYTES * step.num_trainable


def seconds_here(config: RunConfig, step_flops: int, jobs: int) -> float | None:
    """Return the seconds of a training step on this machine, with random weights, pairs or features: median of three.

    It has the cores that each of `jobs` runs at the same time has. None if the step does too many FLOPs for a CPU, does
    not fit, or a tower is missing.
    """
    threads = torch.get_num_threads()
    try:
        device = choose_device(config.train.device)
        if device.type == "cpu" and step_flops > MOST_FLOPS:
            return None
        torch.set_num_threads(max(1, min(threads, len(os.sched_getaffinity(0)) // jobs)))
        with explain_out_of_memory("the batch", TRAIN_MEMORY_HINT):
            step = timed_steps(config, device)
            step()  # the first one is slower
            return median(step() for _ in range(3))
    except UserError:
        return None
    finally:
        torch.set_num_threads(threads)


def print_costs(configs: list[RunConfig], options: Options, jobs: int, out: Path) -> None:
    """Print a line per run name, with its seeds, then totals and the assumptions of the estimate.

    Raises UserError: unknown towers.
    """
    device, share = options.device or DEVICE, options.share or TOWER_SHARE
    peak, counts = DEVICES[device], Counts()
    states = {RunFolder.of(config).path: state_of(config) for config in configs}
    by_name: dict[Path, list[RunConfig]] = {}
    for config in configs:
        by_name.setdefault(RunFolder.of(config).path.parent, []).append(config)
    costs: list[tuple[RunConfig, Cost]] = []
    unknown: list[RunConfig] = []
    timed: list[float] = []  # seconds of training each run here
    width = max(len(str(name)) for name in by_name)
    for name, seeds in by_name.items():
        cost = estimate(seeds[0], peak, share, counts)
        if cost is None:
            unknown += seeds
            numbers = "steps unknown"
        else:
            costs += [(config, cost) for config in seeds]
            numbers = f"{cost.steps:>9,} steps, each {_hours(cost.gpu_hours):>8} GPU-h {cost.disk / 1e9:6.2f} GB"
            if (seconds := seconds_here(seeds[0], cost.step_flops, jobs)) is not None:
                timed += [cost.steps * seconds] * len(seeds)
                numbers += f", here {duration(cost.steps * seconds)}"
        found = Counter(states[RunFolder.of(config).path] for config in seeds)
        progress = ", ".join(f"{count} {state}" for state, count in found.items())
        first, last = seeds[0].seed, seeds[-1].seed  # seeds are consecutive
        span = f"s{first}..s{last}" if first < last else f"s{first}"
        print(f"{name!s:{width}} {span:>8} {seeds[0].train.batch_size:>6} pairs/step {numbers}  {progress}")
    left = [(config, cost) for config, cost in costs if states[RunFolder.of(config).path] not in TRAINED]
    print(f"{len(configs)} run{'s' * (len(configs) > 1)}, {jobs} at a time; the report goes to {out}")
    totals = [_total(costs)] if costs else []
    totals += [f"unknown for {len(unknown)} runs, because their number of pairs is unknown"] if unknown else []
    print(f"all: {', '.join(totals)}" + (f"; not trained yet: {_total(left)}" if len(left) < len(costs) else ""))
    if timed:
        which = "all" if len(timed) == len(configs) else f"{len(timed)} of {len(configs)}"
        print(
            f"here: {sum(timed) / jobs / 3600:.2g} hours of training for {which} runs, from a timed step of each arm; "
            "without loading of data and evaluation"
        )
    if names := ", ".join(dict.fromkeys(config.data.name for config in unknown)):
        print(f"pairs of {names}: unknown; train.samples=N train.epochs=null sets the length of a run")
    pairs = {c.data.name: num_pairs(c) for c in configs if c.data.source != "scenes"}
    for changes in dict.fromkeys(cost.loaders for _, cost in costs if cost.loaders):
        names = ", ".join(dict.fromkeys(config.recipe for config, cost in costs if cost.loaders == changes))
        print(f"{names}: the loaders are slower than the GPU {changes}")
    sizes = "".join(f", {name} taken as {count:,} pairs" for name, count in pairs.items() if count)
    print(
        f"GPU-hours: towers and objective at share={share:g} of one {device}'s peak ({peak.bf16 / 1e12:.0f} TFLOP/s in "
        f"bf16, {peak.fp32 / 1e12:.0f} in fp32){sizes}; device= and share= set device and share. "
        "Not included: evaluation, slow disks, and small towers that do not keep a GPU busy."
    )


def _hours(hours: float) -> str:
    return "<0.1" if hours < 0.1 else f"{hours:,.1f}"


def _total(costs: list[tuple[RunConfig, Cost]]) -> str:
    hours, disk = sum(cost.gpu_hours for _, cost in costs), sum(cost.disk for _, cost in costs)
    return f"{_hours(hours)} GPU-hours of training, {disk / 1e9:,.1f} GB of checkpoints"


def state_of(config: RunConfig) -> str:
    """Return `new`, `at step_X`, `trained`, or `finished` (trained, and all its evaluations done)."""
    run = RunFolder.of(config)
    saved, evaluated = run.checkpoints, run.is_evaluated
    if run.divergence() is None:
        if not saved:
            return "finished" if evaluated else "new"
        if checkpoints.step_of(saved[-1]) != _last_step(config, saved[-1]):
            return f"at {saved[-1].name}"
    return "finished" if evaluated or not config.data.evaluation else "trained"


def _last_step(config: RunConfig, checkpoint: Path) -> int | None:
    """Return the last step of a run, from the number of pairs that its checkpoint records, or else the data set's."""
    try:
        pairs = pairs_of(checkpoints.read_manifest(checkpoint)["data"])
    except (OSError, UserError):
        pairs = None
    return total_steps(config, num_pairs(config) if pairs is None else pairs)
