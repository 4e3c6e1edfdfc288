"""`clipx reproduce dry=true`: list the runs with their progress and estimated cost.

The cost (steps, FLOPs, GPU-hours, disk space) is calculated from a run's config.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch

from clipx import objectives
from clipx.config.presets import num_pairs
from clipx.config.schema import RunConfig
from clipx.data.sampler import Sampler
from clipx.models import clip
from clipx.run import directory
from clipx.run.checkpoint import MANIFEST, checkpoints, step_of
from clipx.training.flops import step_flops
from clipx.utils.registry import lookup
from evaluation.runs.description import duration, training_seconds
from evaluation.runs.reader import read

TRAINED = ("trained", "finished")  # states of a run that needs no more training


@dataclass(frozen=True)
class Chip:
    """Dense peak of a GPU according to its maker, FLOP/s."""

    bf16: float  # with float32 accumulation; the TF32 peak is half of it on all chips here
    fp32: float


CHIPS = {  # from NVIDIA's data sheets and white papers, without sparsity; H100 and H200: SXM
    "A100": Chip(312e12, 19.5e12),
    "H100": Chip(989e12, 67e12),
    "H200": Chip(989e12, 67e12),
    "L40S": Chip(362e12, 91.6e12),
    "RTX4090": Chip(165e12, 82.6e12),
}


@dataclass(frozen=True)
class Cost:
    """The cost of one run."""

    steps: int
    gpu_hours: float
    disk: int  # bytes of the checkpoints it keeps


class Estimator:
    """Estimates costs on one chip; measures the FLOPs of a step once for runs with the same model and batch size.

    Args:
        share: fraction of the chip's peak that training reaches.

    Raises:
        UserError: an unknown chip.
    """

    def __init__(self, chip: str, share: float) -> None:
        self.chip, self.share = lookup(CHIPS, chip, "chip"), share
        self._known: dict[
            str, tuple[int, int, int]
        ] = {}  # settings -> FLOPs of a step, bytes of a checkpoint, bytes of its moments

    def cost(self, config: RunConfig) -> Cost | None:
        """Return the cost, or None if the number of steps is unknown before the data are read.

        Raises UserError: unknown towers or objectives.
        """
        pairs = num_pairs(config)
        steps = total_steps(config, pairs)
        if steps is None:
            return None
        train = config.train
        key = f"{config.model} {config.temperature} {train.batch_size} {train.ema} {train.grad_checkpointing}"
        if key not in self._known:
            self._known[key] = step_flops(config), checkpoint_bytes(config), moment_bytes(config)
        flops, size, moments = self._known[key]
        peak = {"fp32": self.chip.fp32, "tf32": self.chip.bf16 / 2}.get(config.train.precision, self.chip.bf16)
        columns = objectives.build(config.objective, pairs or 2).columns
        kept = min(train.keep, max(1, -(-steps // train.save_every)))
        kept += (steps // train.keep_every if train.keep_every else 0) + (train.keep_best is not None)
        disk = kept * (size + 4 * len(columns) * (pairs or 0)) - (0 if train.keep_optimizer else moments)
        return Cost(steps, flops * steps / (self.share * peak) / 3600, disk)


def total_steps(config: RunConfig, pairs: int | None) -> int | None:
    """Return the number of steps of a run, or None if it depends on an unknown number of pairs."""
    if pairs is None and config.train.samples is None:
        return None
    return Sampler(pairs or config.train.batch_size, config.train, 0, 0, 1, config.data.held_out).total_steps


def checkpoint_bytes(config: RunConfig) -> int:
    """Return the size of weights, averaged weights and AdamW's moments in float32, without the sample table."""
    with torch.device("meta"):
        model = clip.build_model(config, pretrained=False)
    weights: int = sum(tensor.numel() for tensor in model.state_dict().values())
    return 4 * weights * (1 if config.train.ema is None else 2) + moment_bytes(config)


def moment_bytes(config: RunConfig) -> int:
    """Return the size of AdamW's moments in float32."""
    with torch.device("meta"):
        model = clip.build_model(config, pretrained=False)
    return 8 * sum(p.numel() for p in model.parameters() if p.requires_grad)


def print_costs(configs: list[RunConfig], chip: str, share: float, jobs: int, out: Path) -> None:
    """Print a line per run name, with its seeds, then totals and the assumptions of the estimate.

    Raises UserError: an unknown chip, or unknown towers.
    """
    estimator = Estimator(chip, share)
    by_name: dict[Path, list[RunConfig]] = {}
    for config in configs:
        by_name.setdefault(directory.directory(config).parent, []).append(config)
    costs: list[tuple[RunConfig, Cost]] = []
    unknown: list[RunConfig] = []
    width = max(len(str(name)) for name in by_name)
    for name, seeds in by_name.items():
        cost = estimator.cost(seeds[0])
        if cost is None:
            unknown += seeds
            numbers = "steps unknown"
        else:
            costs += [(config, cost) for config in seeds]
            numbers = f"{cost.steps:>9,} steps, each {_hours(cost.gpu_hours):>8} GPU-h {cost.disk / 1e9:6.2f} GB"
        states = ", ".join(f"{count} {state}" for state, count in Counter(map(_state, seeds)).items())
        span = "..".join(dict.fromkeys(f"s{config.seed}" for config in (seeds[0], seeds[-1])))  # consecutive
        print(f"{name!s:{width}} {span:>8} {seeds[0].train.batch_size:>6} pairs/step {numbers}  {states}")
    left = [(config, cost) for config, cost in costs if _state(config) not in TRAINED]
    print(f"{len(configs)} runs, {jobs} at a time; the report goes to {out}")
    totals = [_total(costs)] if costs else []
    totals += [f"unknown for {len(unknown)} runs, because their number of pairs is unknown"] if unknown else []
    print(f"all: {', '.join(totals)}" + (f"; left: {_total(left)}" if len(left) < len(costs) else ""))
    _print_time_left(configs, jobs)
    if names := ", ".join(dict.fromkeys(config.data.name for config in unknown)):
        print(f"pairs of {names}: unknown; train.samples=N train.epochs=null sets the length of a run")
    pairs = {c.data.name: num_pairs(c) for c in configs if c.data.source != "scenes"}
    sizes = "".join(f", {name} taken as {count:,} pairs" for name, count in pairs.items() if count)
    peak = estimator.chip
    print(
        f"GPU-hours: FLOPs of both towers{sizes}, at share={share:g} of one {chip}'s peak "
        f"({peak.bf16 / 1e12:.0f} TFLOP/s in bf16, {peak.fp32 / 1e12:.0f} in fp32); chip= and share= change that. "
        "Not included: evaluation, slow disks, and small towers that do not keep a GPU busy."
    )


def _hours(hours: float) -> str:
    return "<0.1" if hours < 0.1 else f"{hours:,.1f}"


def _total(costs: list[tuple[RunConfig, Cost]]) -> str:
    hours, disk = sum(cost.gpu_hours for _, cost in costs), sum(cost.disk for _, cost in costs)
    return f"{_hours(hours)} GPU-hours of training, {disk / 1e9:,.1f} GB of checkpoints"


def _state(config: RunConfig) -> str:
    """Return `new`, `at step_X`, `trained`, or `finished` (trained, and evaluated if it has evaluation sets)."""
    run = directory.directory(config)
    saved = checkpoints(run)
    if directory.read_divergence(run) is None:
        if not saved:
            return "new"
        if step_of(saved[-1]) != _last_step(config, saved[-1]):
            return f"at {saved[-1].name}"
    return "trained" if config.data.evaluation and not (run / "results.jsonl").exists() else "finished"


def _last_step(config: RunConfig, checkpoint: Path) -> int | None:
    """Return the last step of a run. Its checkpoint stores the pairs as `PAIRS:DIGEST`, except for streams."""
    try:
        pairs = str(json.loads((checkpoint / MANIFEST).read_text())["data"]).partition(":")[0]
    except (OSError, ValueError, KeyError):
        pairs = ""
    return total_steps(config, int(pairs) if pairs.isdigit() else num_pairs(config))


def _print_time_left(configs: list[RunConfig], jobs: int) -> None:
    """Print the estimated training time left on this machine, if it has finished a run of each recipe."""
    seconds: dict[str, list[float]] = {}
    left: Counter[str] = Counter()
    for config in configs:
        if _state(config) not in TRAINED:
            left[config.recipe] += 1
        elif (took := training_seconds(read(directory.directory(config)))) is not None:
            seconds.setdefault(config.recipe, []).append(took)
    if not left or not set(left) <= set(seconds):
        return
    total = sum(count * fmean(seconds[recipe]) for recipe, count in left.items()) / jobs
    finished = sum(map(len, seconds.values()))
    print(f"here: about {duration(total)} of training left, based on {finished} finished runs; without evaluation")
