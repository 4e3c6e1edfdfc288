"""Groups of runs that differ in their seed only, and summaries of their metrics."""

import os
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from clipx.config.presets import OBJECTIVES
from clipx.run.folder import default_name, identity_keys
from evaluation.runs.description import all_settings, last, objective, plugin_code, settings_of_method
from evaluation.runs.reader import Run
from evaluation.runs.results import DIVERGED
from evaluation.statistics import are_equal, t_interval
from evaluation.types import Result

MIN_SEEDS = 3  # for Student's t; with two seeds the interval is 12.7 times as wide as their range
Standing = Literal["above chance", "not different", "below chance", "no chance level"]


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in their seed only."""

    label: str
    runs: list[Run]

    @property
    def longest(self) -> list[Run]:
        """The runs with the most logged steps. Shorter ones diverged or are unfinished: they tell no steps and cost."""
        steps = [last(run, "step") or 0.0 for run in self.runs]
        return [run for run, of_run in zip(self.runs, steps, strict=True) if of_run == max(steps)]


@dataclass(frozen=True)
class MetricSummary:
    """A metric of one group."""

    group: RunGroup
    row: Result  # the row of the first seed, but with the mean over the seeds, and the interval that `over_seeds` names
    own_low: float  # mean of the seeds' lower bootstrap bounds
    own_high: float
    seeds: int
    over_seeds: bool  # the interval is Student's t; else the mean bootstrap interval, for few or equal seeds

    @property
    def standing(self) -> Standing:
        """Compare with chance: "not different" if the interval contains or touches the chance level.

        The mean bootstrap interval must exclude chance too. The seeds share their examples, so their agreement
        says nothing about other examples (three seeds with 11 of 40 right each are not above 0.25).
        """
        chance = self.row.chance
        if chance is None:
            return "no chance level"
        if min(self.row.low, self.own_low) > chance:
            return "above chance"
        return "below chance" if max(self.row.high, self.own_high) < chance else "not different"

    @property
    def source(self) -> str:
        """Return the method that gave the interval; the binomial one if all examples are right, or all are wrong."""
        if self.over_seeds:
            return f"t, {self.seeds} seeds"
        if self.row.low == self.row.high:
            return "none: too few examples"
        method = "exact binomial" if self.row.value in (0.0, 1.0) else "bootstrap"
        return method if self.seeds == 1 else f"{method}, mean of {self.seeds} seeds"


def group_runs(runs: list[Run]) -> list[RunGroup]:
    """Group the runs that have the same name and parent folder; every label is unique.

    Labels are those of `method_labels`. A single group, and groups that these labels do not tell apart, have the name
    of their run instead; if several have this name, their folders below the common one follow it.
    """
    members: dict[tuple[Path, str], list[Run]] = {}
    for run in runs:
        members.setdefault((run.path.resolve().parent, run.name), []).append(run)
    names = Counter(name for _, name in members)
    common = os.path.commonpath([folder for folder, _ in members]) if members else ""
    groups = [
        RunGroup(label=name if names[name] == 1 else f"{name} ({_below(folder, common)})", runs=runs)
        for (folder, name), runs in members.items()
    ]
    labels = _labels_with_recipe(groups)
    unique = [label for label, count in Counter(labels).items() if count == 1 and len(labels) > 1]
    return [
        replace(group, label=label) if label in unique else group for group, label in zip(groups, labels, strict=True)
    ]


def _below(folder: Path, common: str) -> str:
    """Return the path of a folder below `common`; if it is `common` itself, its name."""
    return folder.name if folder == Path(common) else str(folder.relative_to(common))


def _labels_with_recipe(groups: list[RunGroup]) -> list[str]:
    """Return the labels of the methods of each recipe, which start with the recipe if there are several."""
    by_recipe: dict[str, list[RunGroup]] = {}
    for group in groups:
        by_recipe.setdefault(group.runs[0].config.recipe, []).append(group)
    found = {}
    for recipe, of_recipe in by_recipe.items():
        for group, label in zip(of_recipe, method_labels(of_recipe), strict=True):
            is_clear = len(by_recipe) == 1 or label.startswith(group.runs[0].config.name)
            found[group.label] = label if is_clear else default_name(recipe, label)
    return [found[group.label] for group in groups]


def method_labels(groups: list[RunGroup], without: Set[str] = frozenset()) -> list[str]:
    """Return a label of each method: the name that the user chose, else its arm, else its objective.

    An objective that equals a preset has its name, any other those of its terms: `clip_reg`, `clip+uniform`.

    Methods that would share a label also get settings that tell them apart: `clip optimizer.lr=0.004`. If only one of
    them has no overrides, it gets none. The settings `without` are not used. Results without settings have the name of
    their folder.
    """
    runs = [group.runs[0] for group in groups]
    names = [_own_name(run) for run in runs]
    keys = {*identity_keys()} - {"name", "arm", "seed"} - without
    settings = [
        {key: value for key, value in all_settings(run).items() if key in keys or key.startswith("objective.")}
        | plugin_code(run)
        for run in runs
    ]
    plain = Counter(name for name, run in zip(names, runs, strict=True) if _has_no_overrides(run))
    labels = []
    for name, own, run in zip(names, settings, runs, strict=True):
        telling = _telling([other for other, of in zip(settings, names, strict=True) if of == name])
        is_plain = plain[name] == 1 and _has_no_overrides(run)
        labels.append(" ".join([name, *(f"{key}={own[key]}" for key in telling if key in own and not is_plain)]))
    return labels


def _own_name(run: Run) -> str:
    config = run.config
    chosen = config.name != config.recipe and not config.name.startswith(f"{config.recipe}-")
    preset = next((name for name, terms in OBJECTIVES.items() if terms == config.objective), "")
    return config.name if chosen else config.arm or preset or "+".join(config.objective) or run.name


def _has_no_overrides(run: Run) -> bool:
    """Return True if the run has the settings of its recipe, but for the arm or the objective that names it."""
    return run.config.name in {default_name(run.config.recipe, name) for name in (run.config.arm, _own_name(run))}


def _telling(settings: list[dict[str, str]]) -> list[str]:
    """Return a few keys whose values tell all the settings apart: the recipe first, then those with most values."""
    values = {key: {of.get(key) for of in settings} for key in dict.fromkeys(key for of in settings for key in of)}
    ordered = sorted(values, key=lambda key: (key != "recipe", -len(values[key])))
    chosen, told_apart = list[str](), 1
    for key in ordered:
        different = len({tuple(of.get(one) for one in (*chosen, key)) for of in settings})
        if different > told_apart:
            chosen, told_apart = [*chosen, key], different
    return chosen


def describe_methods(groups: list[RunGroup]) -> list[str]:
    """Return each group's objective, and its settings that differ from the most common value."""
    by_group = [settings_of_method(group.runs[0])[1] for group in groups]
    all_keys = {key: None for settings in by_group for key in settings}
    usual = {key: Counter(settings.get(key) for settings in by_group).most_common(1)[0][0] for key in all_keys}
    return [
        "; ".join([
            objective(group.runs[0]),
            *(f"{key}={value}" for key, value in settings.items() if value != usual[key]),
        ])
        for group, settings in zip(groups, by_group, strict=True)
    ]  # fmt: skip


def summarise_metrics(groups: list[RunGroup]) -> list[MetricSummary]:
    """Return every metric of every group, ordered by task, data set and metric; the groups of a metric are adjacent.

    If a run was evaluated several times, the last row of a metric counts. The row of a diverged run is not a metric.
    """
    found: dict[tuple[str, str, str, str], list[MetricSummary]] = {}
    for group in groups:
        rows: dict[tuple[str, str, str, str], list[Result]] = {}
        for run in group.runs:
            for key, row in {row.key: row for row in run.results}.items():
                if row.task != DIVERGED:
                    rows.setdefault(key, []).append(row)
        for key, of_seeds in rows.items():
            found.setdefault(key, []).append(_summarise(group, of_seeds))
    tasks = list(dict.fromkeys(key[0] for key in found))
    splits = list(dict.fromkeys(key[:3] for key in found))
    order = sorted(found, key=lambda key: (tasks.index(key[0]), splits.index(key[:3])))  # as first evaluated
    return [summary for key in order for summary in found[key]]


def _summarise(group: RunGroup, rows: list[Result]) -> MetricSummary:
    own_low, own_high = fmean(row.low for row in rows), fmean(row.high for row in rows)
    values = [row.value for row in rows]
    over_seeds = len(rows) >= MIN_SEEDS and not are_equal(values)  # equal ones do not show how far another may differ
    value, low, high = t_interval(values) if over_seeds else (fmean(values), own_low, own_high)
    row = replace(rows[0], value=value, low=low, high=high)
    return MetricSummary(group, row, own_low, own_high, len(rows), over_seeds)
