"""The result row of a run that diverged: a loss that is no number, in place of scores."""

import math
from pathlib import Path

from clipx.run import directory
from evaluation.runs import results
from evaluation.types import Result

TASK = "train"


def record(run: Path, ended: directory.Diverged) -> list[Result]:
    """Writes results.jsonl and its tables; returns all rows of the run, scores of checkpoints among them."""
    config = directory.load_config(run)
    row = Result(
        task=TASK,
        dataset=config.data.name,
        split=config.data.split,
        metric="loss",
        value=math.nan,
        n=ended.step * config.train.batch_size,
        low=math.nan,
        high=math.nan,
        chance=None,
        higher_is_better=False,
        seed=config.seed,
        model=f"{config.name}/s{config.seed} diverged at step {ended.step}",
    )
    path = run / "results.jsonl"
    rows = [*(other for other in results.read(path) if other.task != TASK), row]
    results.write(path, rows)
    results.write_tables(run, rows)
    return rows
