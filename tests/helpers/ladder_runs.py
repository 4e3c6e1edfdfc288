"""Runs of a scaling ladder, whose errors are those of a simulated experiment (tests/bench/scaling.py)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from evaluation.runs.reader import Run
from tests.bench.scaling import CASES, X, experiment
from tests.helpers.synthetic import run

FIRST, SECOND = experiment(CASES[0], np.random.default_rng(0))  # errors [8 seeds, 6 points]
TOWERS = {"image": {"name": "open_clip:a"}, "text": {"name": "open_clip:a"}}


def at(arm: str, seed: int, samples: float, error: float, towers: dict[str, dict[str, str]] = TOWERS) -> Run:
    """Return a run with this number of samples; its zero-shot error has the mean `error` over two data sets."""
    settings = {
        "data": {"name": "d", "source": "scenes", "scenes": {"num_train": 500}},
        "model": towers,
        "train": {"samples": int(samples), "batch_size": 64},
    }
    values = {("zeroshot", "x", "top1"): 1 - error - 0.01, ("zeroshot", "y", "top1"): 1 - error + 0.01}
    log = [{"step": 1, "samples": samples, "images_per_s": 100.0}]
    one = run("mine", arm, seed, values, log, settings)
    name = f"{one.name}-train.samples_{int(samples)}"
    return replace(one, name=name, path=Path("runs") / name / f"s{seed}", config={**one.config, "name": name})


def runs_of(
    arm: str, errors: Sequence[Sequence[float]], points: Sequence[float] = tuple(X), first: int = 0
) -> list[Run]:
    """Return the runs of an arm with these errors [seeds, points]; `first` is the lowest seed."""
    return [
        at(arm, first + seed, samples, error)
        for seed, curve in enumerate(errors)
        for samples, error in zip(points, curve, strict=True)
    ]


BOTH = runs_of("early", SECOND.tolist()) + runs_of("clip", FIRST.tolist())
