"""Runs of methods with given scores that differ by seed, and their comparison."""

from typing import Any

from evaluation.compare.methods import MethodComparison, compare
from evaluation.runs.groups import group_runs
from evaluation.runs.reader import Run
from tests.helpers.synthetic import Values, run

SEED_SHIFT = [0.0, 0.1, -0.1, 0.05]  # by seed, the same for all methods
TINY = [1e-6, 0.0, -1e-6, 0.0]  # without it, equal differences in all seeds would order nothing
OWN_SHIFT = {"low": [0.001, -0.001, 0.0, 0.0], "high": [0.0, 0.001, -0.001, 0.0], "b": TINY, "better": TINY}


def settings(**changes: Any) -> dict[str, Any]:
    """Return settings of a run, of which `changes` replaces whole groups."""
    towers = {"image": {"name": "open_clip:a"}, "text": {"name": "open_clip:a"}}
    return {
        "data": {"name": "d", "source": "shards"},
        "model": towers,
        "objective": {"clip": {}},
        "train": {"samples": 640, "batch_size": 64},
        **changes,
    }


def runs_of(arm: str, level: float, seeds: int = 3, **changes: Any) -> list[Run]:
    """Return a run per seed, whose scores are `level` plus the shifts of seed and arm; its gap is 1 - level."""
    runs = []
    changes = {"optimizer": {"lr": len(arm) + ord(arm[-1])}, **changes}  # equal settings would be merged
    for seed in range(seeds):
        value = level + SEED_SHIFT[seed] + OWN_SHIFT.get(arm, [0.0] * 4)[seed]
        values: Values = {("zeroshot", name, "top1"): value for name in ("x", "y")}
        values[("geometry", "c", "gap")] = 1 - level
        runs.append(run("mine", arm, seed, values, settings=settings(**changes)))
    return runs


def compare_all(runs: list[Run], **by: Any) -> MethodComparison:
    """Return the comparison of all runs. They must be comparable, and none may be left out."""
    (comparison,), left_out = compare(group_runs(runs), **by)
    assert not left_out
    return comparison
