"""Speed of runs on small rendered scenes: `make bench-mini`, on an idle machine.

1. Milliseconds per step of 64 pairs in `clipx train` on one core: towers, loader, optimizer and log. The first line is
   `micro-48` on 48 px. The others are `small:` towers on 32 px: without and with data.cache=memory, in bfloat16, with
   tokens, and with point sets.
2. Three numbers of `clipx reproduce`: seconds between two runs of one process (without evaluation), seconds of an
   evaluation on sets of 5,000 images, and MB of a run directory. The first run also decodes images, so the medians
   leave it out.

SAMPLES (pairs per run of part 1) and SEEDS (of part 2) in the environment set the duration. Rendered scenes are kept in
the cache, so a second call is faster.
"""

import os
import statistics
import sys
import tempfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from tests.bench.measure import run
from tests.helpers.runs import log

SAMPLES, SEEDS = int(os.environ.get("SAMPLES", "38400")), int(os.environ.get("SEEDS", "4"))
BATCH, TRAINING = 64, 8_000  # batch size, rendered training pairs
TEST_IMAGES = {"data.scenes.test_images": 5000}  # of each evaluation set
SHARDS = {"data.cache": "none", "data.workers": 0}
MICRO = {f"model.{side}.name": "open_clip:micro-48" for side in ("image", "text")} | {"data.scenes.image_size": 48}
SMALL = {"data.scenes.image_size": 32, "model.image.name": "small:conv", "model.text.name": "small:bag"}
MEMORY = {"data.cache": "memory", "data.workers": 0}
TOKENS = {"model.image.name": "small:vit", "model.text.name": "small:transformer"}
POINTS = {"model.points.kernel": "imq", "model.points.features_train": 512}
CASES: dict[str, dict[str, object]] = {
    "micro-48": {**SHARDS, **MICRO},
    "small, from shards": {**SMALL, **SHARDS},
    "small": {**SMALL, **MEMORY},
    "small, bf16": {**SMALL, **MEMORY, "train.precision": "bf16"},
    "small tokens, CLIP": {**SMALL, **MEMORY, **TOKENS},
    "small tokens, point sets": {**SMALL, **MEMORY, **TOKENS, **POINTS},
}


def clipx(*arguments: str) -> None:
    """Run a clipx command on one core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run([sys.executable, "-m", "cli.main", *arguments], environment)


def overrides(changes: dict[str, object]) -> list[str]:
    """Return the overrides of a case."""
    common = {"data.scenes.num_train": TRAINING, "train.batch_size": BATCH, "train.save_every": 10**6}
    return [f"{key}={value!r}" if ":" in str(value) else f"{key}={value}" for key, value in (common | changes).items()]


def milliseconds(folder: Path, name: str, changes: dict[str, object]) -> tuple[float, float, dict[str, float]]:
    """Train once; return the median and the smallest ms per step in log.jsonl, and the median step's ms by phase."""
    runs = folder / "".join(c if c.isalnum() else "_" for c in name)
    clipx("train", "recipe=demo", *overrides(changes), f"train.samples={SAMPLES}", f"runs={runs}", "name=run")
    rows = log(runs / "run" / "s0")
    timed = sorted((1e3 * BATCH / row["images_per_s"], row["step"]) for row in rows if "images_per_s" in row)
    middle = timed[len(timed) // 2]
    phases = next(row["step_s"] for row in rows if row["step"] == middle[1])
    return middle[0], timed[0][0], {phase: 1e3 * seconds for phase, seconds in phases.items()}


def reproduce(folder: Path) -> None:
    """Print the seconds between runs, the seconds of an evaluation, and the MB of a run directory."""
    short = [
        f"train.samples={50 * BATCH}",
        "schedule.warmup_steps=1",
        "log.every=1",
        "train.keep=1",
        "train.keep_optimizer=false",
    ]
    arguments = [f"seeds={SEEDS}", "jobs=1", f"runs={folder}", f"out={folder / 'report'}", "arms=clip"]
    clipx("reproduce", "recipe=clip_reg_mini", *overrides({**SMALL, **MEMORY, **TEST_IMAGES}), *short, *arguments)
    runs = sorted(folder.glob("*/s*"), key=lambda run: (run / "log.jsonl").stat().st_mtime)
    gaps, evaluations = [], []
    for before, after in pairwise(runs):
        first = log(after)[1]  # line 0 is about the untrained model
        started = datetime.fromisoformat(first["time"]).timestamp()
        ended = (before / "log.jsonl").stat().st_mtime
        evaluated = (before / "results.md").stat().st_mtime - ended
        evaluations.append(evaluated)
        gaps.append(max(0.0, started - ended - evaluated))
    size = sum(file.stat().st_size for file in runs[0].rglob("*") if file.is_file()) / 1e6
    print(f"between two runs {statistics.median(gaps[1:]):.1f} s (log.jsonl has whole seconds), ", end="")
    print(f"evaluation {statistics.median(evaluations[1:]):.1f} s, first {evaluations[0]:.1f} s; {size:.1f} MB per run")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        baseline = 0.0
        for case, changes in CASES.items():
            middle, best, phases = milliseconds(folder, case, changes)
            baseline = baseline or middle
            parts = ", ".join(f"{phase} {ms:.1f}" for phase, ms in phases.items())
            speedup = f"{baseline / middle:4.1f} times as fast as micro-48"
            print(f"{case:25s} {middle:6.1f} ms a step (best {best:.1f}), {speedup} ({parts})", flush=True)
        reproduce(folder / "reproduce")


if __name__ == "__main__":
    main()
