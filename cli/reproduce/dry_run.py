"""`clipx reproduce dry=true`: list the runs with their progress and estimated cost."""

import json
from collections import Counter
from pathlib import Path
from statistics import fmean

from cli.reproduce.cost import Cost, Estimator, num_pairs, total_steps
from clipx.config.schema import RunConfig
from clipx.run import directory
from clipx.run.checkpoint import MANIFEST, checkpoints, step_of
from evaluation.runs.description import duration, training_seconds
from evaluation.runs.reader import read

TRAINED = ("trained", "finished")


def print_costs(configs: list[RunConfig], chip: str, share: float, jobs: int, out: Path) -> None:
    """Print a line per run name, with its seeds, then totals and the assumptions behind them.

    Raises:
        UserError: an unknown chip, or unknown towers.
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
        else:
            costs += [(config, cost) for config in seeds]
        numbers = "steps unknown" if cost is None else _numbers(cost)
        states = ", ".join(f"{count} {state}" for state, count in Counter(map(_state, seeds)).items())
        print(f"{name!s:{width}} {_seeds(seeds):>8} {seeds[0].train.batch_size:>6} pairs/step {numbers}  {states}")
    left = [(config, cost) for config, cost in costs if _state(config) not in TRAINED]
    print(f"{len(configs)} runs, {jobs} at a time; the report goes to {out}")
    totals = [_total(costs)] if costs else []
    totals += [f"unknown for {len(unknown)} runs, because their number of pairs is unknown"] if unknown else []
    print(f"all: {', '.join(totals)}" + (f"; left: {_total(left)}" if len(left) < len(costs) else ""))
    for line in (*_time_left(configs, jobs), *_advice(unknown), _assumptions(configs, chip, share, estimator)):
        print(line)


def _seeds(configs: list[RunConfig]) -> str:
    """Return `s0..s2`; the seeds of a plan are consecutive."""
    first, last = configs[0].seed, configs[-1].seed
    return f"s{first}" if first == last else f"s{first}..s{last}"


def _numbers(cost: Cost) -> str:
    return f"{cost.steps:>9,} steps, each {_hours(cost.gpu_hours):>8} GPU-h {cost.disk / 1e9:6.2f} GB"


def _hours(hours: float) -> str:
    return "<0.1" if hours < 0.1 else f"{hours:,.1f}"


def _total(costs: list[tuple[RunConfig, Cost]]) -> str:
    hours, disk = sum(cost.gpu_hours for _, cost in costs), sum(cost.disk for _, cost in costs)
    return f"{_hours(hours)} GPU-hours of training, {disk / 1e9:,.1f} GB of checkpoints"


def _state(config: RunConfig) -> str:
    """Return `new`, `at step_X`, `trained`, or `finished`: trained, and evaluated if there are evaluation sets."""
    run = directory.directory(config)
    saved = checkpoints(run)
    if directory.read_divergence(run) is None:
        if not saved:
            return "new"
        if step_of(saved[-1]) != _last_step(config, saved[-1]):
            return f"at {saved[-1].name}"
    return "trained" if config.data.evaluation and not (run / "results.jsonl").exists() else "finished"


def _last_step(config: RunConfig, checkpoint: Path) -> int | None:
    """Return the last step of a run, from the number of pairs in its checkpoint's `PAIRS:DIGEST`; streams have none."""
    try:
        pairs = str(json.loads((checkpoint / MANIFEST).read_text())["data"]).partition(":")[0]
    except (OSError, ValueError, KeyError):
        pairs = ""
    return total_steps(config, int(pairs) if pairs.isdigit() else num_pairs(config))


def _time_left(configs: list[RunConfig], jobs: int) -> list[str]:
    """Estimate the training time left on this machine, if it has finished a run of each recipe."""
    seconds: dict[str, list[float]] = {}
    left: Counter[str] = Counter()
    for config in configs:
        if _state(config) not in TRAINED:
            left[config.recipe] += 1
        elif (took := training_seconds(read(directory.directory(config)))) is not None:
            seconds.setdefault(config.recipe, []).append(took)
    if not left or not set(left) <= set(seconds):
        return []
    total = sum(count * fmean(seconds[recipe]) for recipe, count in left.items()) / jobs
    finished = sum(map(len, seconds.values()))
    return [f"here: about {duration(total)} of training left, by {finished} finished runs; without evaluation"]


def _advice(unknown: list[RunConfig]) -> list[str]:
    names = ", ".join(dict.fromkeys(config.data.name for config in unknown))
    return [f"pairs of {names}: unknown; train.samples=N train.epochs=null sets the length of a run"] if names else []


def _assumptions(configs: list[RunConfig], chip: str, share: float, estimator: Estimator) -> str:
    pairs = {c.data.name: num_pairs(c) for c in configs if c.data.source != "scenes"}
    sizes = "".join(f", {name} taken as {count:,} pairs" for name, count in pairs.items() if count)
    peak = estimator.chip
    return (
        f"GPU-hours: FLOPs of both towers{sizes}, at share={share:g} of one {chip}'s peak "
        f"({peak.bf16 / 1e12:.0f} TFLOP/s in bf16, {peak.fp32 / 1e12:.0f} in fp32); chip= and share= change that. "
        "Not included: evaluation, slow disks, and small towers that do not keep a GPU busy."
    )
