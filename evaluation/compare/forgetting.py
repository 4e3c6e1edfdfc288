"""Gain and forgetting: compare every fine-tuned run with the run that it starts from (model.init), by seed.

Gain is the rise of the mean score on the new evaluation sets, forgetting the fall on the kept sets (data.kept). A score
is zero-shot accuracy, R@1 (mean of both directions) or pair accuracy. Only sets that all runs share count.

Results of weights between start and end are read from RUN/interpolated/ALPHA (Wortsman et al. 2022, WiSE-FT): alpha = 0
are the start weights, alpha = 1 the weights after fine-tuning.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from clipx.run.folder import RESULTS, other_run
from evaluation.claims.measures import (
    PAIR_ACCURACY,
    RECALL_1,
    ZEROSHOT,
    canonical_name,
    dataset_of,
    value_name,
    value_title,
)
from evaluation.compare.methods import SeedMean, seed_mean
from evaluation.runs import results
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run
from evaluation.types import Result

READERS = (ZEROSHOT, RECALL_1, PAIR_ACCURACY)
INTERPOLATED = "interpolated"  # folder in a run directory, with one results folder per alpha
ALPHA = r"\d+(\.\d+)?(e-\d+)?"  # name of such a results folder: 0.5, 1, 1e-05
Scores = dict[str, float]  # "TASK DATASET" -> score, or change of the score
Sides = tuple[Scores, Scores]  # on the new and on the kept sets


@dataclass(frozen=True)
class Change:
    """Change since the start weights, of one run or of interpolated weights."""

    gain: float
    forgetting: float
    by_set: Scores

    @property
    def net(self) -> float:
        """Gain minus forgetting."""
        return self.gain - self.forgetting


@dataclass(frozen=True)
class FineTuned:
    """One arm: runs that differ in their seed only."""

    label: str
    curves: dict[int, dict[float, Change]]  # seed -> alpha -> change; without interpolated weights only alpha 0 and 1

    def mean(self, value: Callable[[Change], float]) -> SeedMean:
        """Return the mean over the seeds of a value after fine-tuning, with its interval."""
        return _over_seeds({seed: value(curve[1.0]) for seed, curve in self.curves.items()})

    def path(self) -> list[tuple[float, float]]:
        """Return the mean forgetting and gain at every alpha that all seeds have; [] if these are only 0 and 1."""
        changes = [[curve[alpha] for curve in self.curves.values()] for alpha in self._shared()]
        path = [(fmean(change.forgetting for change in at), fmean(change.gain for change in at)) for at in changes]
        return path if len(path) > 2 else []

    def area(self) -> SeedMean | None:
        """Return gain minus forgetting, integrated over alpha (trapezoids): mean over seeds; None without a path."""
        if not self.path():
            return None
        alphas = self._shared()
        net = {seed: [curve[alpha].net for alpha in alphas] for seed, curve in self.curves.items()}
        return _over_seeds({seed: float(np.trapezoid(of_seed, alphas)) for seed, of_seed in net.items()})

    def _shared(self) -> list[float]:
        """Return the alphas that all seeds have."""
        return sorted(set.intersection(*(set(curve) for curve in self.curves.values())))


@dataclass(frozen=True)
class FineTuning:
    """The fine-tuned arms of one recipe."""

    recipe: str
    new: list[str]  # "TASK DATASET" of the new sets, with canonical names
    kept: list[str]
    arms: list[FineTuned]  # largest gain minus forgetting first
    left_out: list[Path]  # runs without a scored start run; all runs if they share no new or no kept set
    titles: dict[str, str]  # "TASK DATASET" with canonical names -> the same with the names in the results


def fine_tunings(groups: list[RunGroup]) -> list[FineTuning]:
    """Return the fine-tuning of each recipe that has runs with model.init, data.kept and results."""
    by_recipe: dict[str, list[RunGroup]] = {}
    for group in groups:
        tuned = [run for run in group.runs if run.config.model.init and scores_of(run)[1]]
        if tuned:
            by_recipe.setdefault(tuned[0].config.recipe, []).append(RunGroup(group.label, tuned))
    known = {run.path.resolve(): run for group in groups for run in group.runs}
    return [_fine_tuning(recipe, of_recipe, known) for recipe, of_recipe in by_recipe.items()]


def start_of(run: Run, known: dict[Path, Run]) -> Run | None:
    """Return the run that model.init of `run` names, if it is in `known` (folder -> run)."""
    config = replace(run.config, name=run.name, runs=str(run.path.resolve().parent.parent))  # where the runs are now
    path = other_run(config, str(config.model.init))
    if path.parent.name == "checkpoints":
        path = path.parent.parent
    return known.get(path.resolve())


def _fine_tuning(recipe: str, groups: list[RunGroup], known: dict[Path, Run]) -> FineTuning:
    runs = [run for group in groups for run in group.runs]
    starts: dict[Path, Sides] = {}  # fine-tuned run -> scores of its start run
    for run in runs:
        start = start_of(run, known)
        # use the config of `run`: that of the start run may lack data.kept
        if start and all(scores := scores_of(replace(run, results=_start_rows(run, start)))):
            starts[run.path] = scores
    every = [*starts.values(), *(scores_of(run) for run in runs if run.path in starts)]
    new, kept = (sorted(set.intersection(*(set(of[side]) for of in every))) if every else [] for side in (0, 1))
    arms = []
    for group in groups if new and kept else []:
        curves = {run.seed: _curve(run, starts[run.path], new, kept) for run in group.runs if run.path in starts}
        if curves:
            arms.append(FineTuned(group.label.removeprefix(f"{recipe}-"), curves))
    arms.sort(key=lambda arm: -arm.mean(lambda change: change.net).value)
    left_out = [run.path for run in runs if run.path not in starts or not arms]
    titles = {value_name(row): value_title(row) for run in runs for row in run.results}
    return FineTuning(recipe, new, kept, arms, left_out, titles)


def _start_rows(run: Run, start: Run) -> list[Result]:
    """Return the results of the start weights, which may be those of an earlier checkpoint of the start run."""
    init = run.environment.get("init", {})  # recorded at the start of training
    folder = start.path / results.INTERMEDIATE / Path(str(init.get("checkpoint", ""))).name
    digest = str(init.get("sha256", ""))[:16]
    earlier = [row for row in results.read(folder / RESULTS) if results.LIMIT not in row.hashes]
    return [row for row in [*start.results, *earlier] if digest in ("", row.hashes.get("checkpoint"))]


def _curve(run: Run, start: Sides, new: list[str], kept: list[str]) -> dict[float, Change]:
    """Return alpha -> change on the sets `new` and `kept`, in ascending order of alpha."""
    scores = {0.0: start, 1.0: scores_of(run)}
    for folder in (run.path / INTERPOLATED).glob("*"):
        if not re.fullmatch(ALPHA, folder.name):  # a folder that clipx did not make
            continue
        rows = [row for row in results.read(folder / RESULTS) if results.LIMIT not in row.hashes]
        found = scores_of(replace(run, results=rows))
        if set(new) <= set(found[0]) and set(kept) <= set(found[1]):
            scores.setdefault(float(folder.name), found)
    curve = {}
    for alpha, (on_new, on_kept) in sorted(scores.items()):
        of_new = {name: on_new[name] - start[0][name] for name in new}
        of_kept = {name: on_kept[name] - start[1][name] for name in kept}
        curve[alpha] = Change(fmean(of_new.values()), -fmean(of_kept.values()), of_new | of_kept)
    return curve


def scores_of(run: Run) -> Sides:
    """Return the scores on the new and on the kept sets, which data.kept names; {} and {} if it is empty."""
    kept = {canonical_name(name) for name in run.config.data.kept}
    values = [item for reader in READERS for item in reader.read(run).items() if kept]
    new, old = ({name: v for name, v in values if (dataset_of(name) in kept) == is_kept} for is_kept in (False, True))
    return new, old


def _over_seeds(values: dict[int, float]) -> SeedMean:
    found = seed_mean(values)
    assert found is not None  # an arm has at least one seed
    return found
