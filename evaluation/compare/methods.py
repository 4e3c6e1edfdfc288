"""Comparison of methods trained under the same conditions, with differences paired by seed.

Runs are comparable if towers, training data, length and batch size are the same. Runs with the same seed then see the
same samples in the same order. The method may differ: objective, temperature, mixing, point sets, optimizer, schedule.
A score is read by the same readers as in the claims, and averaged over the data sets that all compared runs share.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from clipx.errors import UserError
from clipx.utils import plugins
from evaluation.claims.measures import (
    GAP,
    MARGIN,
    PAIR_ACCURACY,
    PROBE,
    RECALL_1,
    UNIFORMITY,
    ZEROSHOT,
    MetricReader,
    value_name,
    value_title,
)
from evaluation.claims.types import Measure
from evaluation.claims.verdict import holm
from evaluation.runs.description import (
    differing,
    digits,
    percent,
    settings_of_method,
    training_conditions,
    unfinished,
    without_effect,
)
from evaluation.runs.groups import MIN_SEEDS, RunGroup, describe_methods, method_labels
from evaluation.runs.items import over_seeds_and_items
from evaluation.runs.reader import Run
from evaluation.statistics import are_equal, t_interval
from evaluation.types import HEADLINE, PAPER_NOTE, Result, first_names

SCORES: dict[str, MetricReader] = {
    "zeroshot": ZEROSHOT,
    "linear_probe": PROBE,
    "retrieval": RECALL_1,
    "pairs": PAIR_ACCURACY,
}
GEOMETRY: dict[str, MetricReader] = {
    "gap": GAP,
    "uniformity": UNIFORMITY,
    "alignment": MetricReader("geometry", ("alignment",)),
    "margin": MARGIN,
}
ERROR = 0.05  # largest probability that any of several equal methods is ranked before another
MEAN = "mean"  # score: mean over the tasks that all scored methods have

BySeed = dict[int, float]  # seed -> value
LeftOut = dict[str, list[str]]  # reason -> runs or methods that are left out for it
Format = Callable[[float, str], str]  # value, sign ("+" or "") -> text


@dataclass(frozen=True)
class SeedMean:
    """Mean over seeds with its 95% interval (Student's t); none with fewer than MIN_SEEDS seeds or equal values."""

    value: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def sign(self) -> int:
        """1 or -1 if the whole interval lies above or below 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)

    @property
    def span(self) -> tuple[float, float]:
        """Low and high end of the interval. If there is no interval, both are the mean."""
        return (self.value, self.value) if self.low is None or self.high is None else (self.low, self.high)

    def interval(self, sign: str = "", text: Format = digits) -> str:
        """Return the interval in brackets, "" if there is none; sign="+" also shows plus signs."""
        return "" if self.low is None or self.high is None else f"[{text(self.low, sign)}, {text(self.high, sign)}]"

    @property
    def p(self) -> float:
        """Two-sided p-value of "the true mean is 0" (paired t-test); 1 without an interval."""
        if self.low is None or self.high is None:
            return 1.0
        df = self.seeds - 1
        error = (self.high - self.low) / (2 * stdtrit(df, 0.975))
        return float(2 * stdtr(df, -abs(self.value) / error))


@dataclass(frozen=True)
class Method:
    """Runs with the same settings, one per seed."""

    name: str
    label: str  # the arm, the objective or the user's name, with the settings that tell the methods apart
    settings: str  # objective, then the settings whose value is not the most common one
    values: dict[str, BySeed]  # task, key of GEOMETRY or MEAN -> values; left out if no run has a value
    sets: dict[str, BySeed]  # "TASK DATASET" -> values, for every data set that at least one run has
    runs: list[Run]

    def has_all(self, name: str) -> bool:
        """Return True if every run that has a score of TASK has one on DATASET; `name`: "TASK DATASET"."""
        return self.sets[name].keys() == self.values.get(name.partition(" ")[0], {}).keys()

    @property
    def diverged(self) -> int:
        """Number of diverged seeds."""
        return sum(run.diverged for run in self.runs)

    @property
    def without_effect(self) -> list[str]:
        """Parts of the method that had no effect in any of its runs."""
        of_runs = [without_effect(run) for run in self.runs]
        return [part for part in of_runs[0] if all(part in found for found in of_runs)] if of_runs else []


@dataclass(frozen=True)
class MethodComparison:
    """Methods trained under identical conditions."""

    conditions: dict[str, str]  # setting -> value
    by: str  # ranking score: MEAN or a task
    tasks: list[str]  # tasks that MEAN averages: those that all scored methods have
    ranked: list[Method]  # best first
    unranked: list[Method]  # methods without a value of `by`
    chance: float | None = None  # level of the ranking score for random answers; None: unknown for one of its tasks
    reference_label: str = ""  # label of the method that differences are taken to; "": the first

    @property
    def reference(self) -> Method:
        """The method with the label `reference_label` if it is ranked, else the first."""
        return next((method for method in self.ranked if method.label == self.reference_label), self.ranked[0])

    def shared_seeds(self, method: Method) -> frozenset[int]:
        """Return the seeds of the ranking score that the method shares with the reference; its own if there are none.

        The mean over these seeds minus that of the reference over them is the paired difference.
        """
        own = frozenset(method.values.get(self.by, {}))
        return own and (own.intersection(self.reference.values[self.by]) or own)

    def mean(self, method: Method, values: BySeed) -> SeedMean | None:
        """Return the mean of `values` over the shared seeds; over all if it has none of them; None if it is empty."""
        shared = self.shared_seeds(method)
        return seed_mean({seed: value for seed, value in values.items() if seed in shared} or values)

    def text(self, measure: str = "") -> Format:
        """Return the function that formats a measure, by default the ranking score: shares in per cent."""
        return percent if self.is_share(measure) else digits

    def is_share(self, measure: str = "") -> bool:
        """Return True if a measure is in per cent. `measure`: by default the score of the ranking."""
        measure = measure or self.by
        return measure in (MEAN, *SCORES) or (measure == self.by and self.chance is not None)

    @property
    def unit(self) -> int:
        """Factor between the ranking score and the number that is shown: 100 for shares."""
        return 100 if self.is_share() else 1

    @property
    def scored(self) -> frozenset[str]:
        """ "TASK DATASET" of the data sets that all scored runs of all ranked methods have."""
        return frozenset.intersection(*(frozenset(filter(method.has_all, method.sets)) for method in self.ranked))

    def above_chance(self, method: Method) -> bool:
        """Return True if the interval over the seeds lies above the chance level; without an interval, the mean."""
        score = seed_mean(method.values[self.by])
        assert score is not None and self.chance is not None
        return (score.value if score.low is None else score.low) > self.chance

    def difference(self, a: Method, b: Method) -> SeedMean | None:
        """Return the mean difference a - b in the ranking score over common seeds; None without common seeds."""
        return seed_mean(paired(a.values[self.by], b.values[self.by]))

    @cached_property
    def over_items(self) -> dict[str, tuple[float, float] | None]:
        """Label -> interval of the method's difference to the reference over seeds and test items.

        None without items, or for a mean; a mean of one task is this task. The items are those of the scored data sets.
        The interval is at least as wide as that over seeds, because a bootstrap of few seeds is too narrow.
        """
        return {one.label: self._over_items(one) for one in self.ranked if one is not self.reference}

    def _over_items(self, method: Method) -> tuple[float, float] | None:
        both, difference = (method, self.reference), self.difference(method, self.reference)
        task = self.tasks[0] if self.by == MEAN and len(self.tasks) == 1 else self.by
        if (reader := SCORES.get(task)) is None or difference is None:
            return None
        ours, theirs = ({r.seed: r.path for r in one.runs if r.seed in one.values[self.by]} for one in both)
        sets = {(row.dataset, row.split) for row in self.scored_rows(method) if row.task == task}
        if (found := over_seeds_and_items(ours, theirs, task, reader.metrics, sets)) is None:
            return None
        return min(found[0], difference.span[0]), max(found[1], difference.span[1])

    def scored_rows(self, method: Method) -> list[Result]:
        """Return the result rows on the scored data sets, without those of a pool or under protocol=paper."""
        rows = [row for run in method.runs for row in run.results if value_title(row) in self.scored]
        return [row for row in rows if PAPER_NOTE not in row.split and "pool" not in row.hashes]

    def ranks(self, method: Method) -> tuple[int, int]:
        """Return the best and the worst rank that the paired differences allow.

        Holm's method is applied to all pairs of methods: if all methods are equal, at most 5% of such rankings put any
        method before another.
        """
        place = self.ranked.index(method)
        better, worse = self._signs[:, place].tolist().count(1), self._signs[place].tolist().count(1)
        return 1 + better, len(self.ranked) - worse

    def not_beaten(self, method: Method) -> list[Method]:
        """Return the other methods that `method` is not significantly ahead of (as `ranks`)."""
        place = self.ranked.index(method)
        return [other for at, other in enumerate(self.ranked) if other is not method and self._signs[place, at] < 1]

    @cached_property
    def _signs(self) -> NDArray[np.int64]:
        """[a, b]: 1 if method a is better than method b after Holm's method, -1 if it is worse, else 0."""
        pairs = [*combinations(range(len(self.ranked)), 2)]
        differences = [self.difference(self.ranked[a], self.ranked[b]) for a, b in pairs]
        signs = np.zeros((len(self.ranked),) * 2, dtype=np.int64)
        adjusted = holm([1.0 if found is None else found.p for found in differences])
        for (a, b), found, p in zip(pairs, differences, adjusted, strict=True):
            if found is not None and p <= ERROR:
                signs[a, b] = np.sign(found.value)
                signs[b, a] = -signs[a, b]
        return signs


def rankable(runs: list[Run]) -> dict[str, MetricReader]:
    """Return task -> reader of its score, for SCORES and for the plug-in tasks in the rows of the runs.

    The score of a plug-in task is the mean of the metrics in the plug-in's HEADLINE; without a HEADLINE, it is the
    task's first metric. Metrics whose lower values are better are ignored.
    """
    found, own = dict(SCORES), plugins.added("HEADLINE")
    for row in (row for run in runs for row in run.results if row.higher_is_better):
        if row.task in own or row.task not in HEADLINE:
            found.setdefault(row.task, MetricReader(row.task, tuple(own.get(row.task, (row.metric,)))))
    return found


def compare(groups: list[RunGroup], by: str = MEAN, on: tuple[str, ...] = ()) -> tuple[list[MethodComparison], LeftOut]:
    """Return the possible comparisons, and the runs that cannot be compared, grouped by reason.

    `on`: data sets to score on; empty: all except the pairs held out of training.

    Raises UserError: no two methods share their conditions; the message lists the settings that differ.
    """
    groups, left_out = _usable(groups)
    by_conditions: dict[tuple[tuple[str, str], ...], list[RunGroup]] = {}
    for group in groups:
        by_conditions.setdefault(tuple(training_conditions(group.runs[0]).items()), []).append(group)
    comparable = {key: members for key, members in by_conditions.items() if len(members) > 1}
    if not comparable:
        problem = _not_comparable([dict(key) for key in by_conditions], [group.label for group in groups])
        raise UserError("; ".join([problem, *describe_left_out(left_out)]))
    compared = dict(next(iter(comparable)))
    for key, members in by_conditions.items():
        if len(members) == 1:
            first, *more = differing(dict(key), compared)
            values = f"{dict(key).get(first, '-')}, not {compared.get(first, '-')}"
            reason = f"no other run with the same {first}" + (f" and {len(more)} other settings" if more else "")
            left_out.setdefault(reason, []).append(f"{members[0].label} ({values})")
    return [_comparison(dict(key), members, by, on) for key, members in comparable.items()], left_out


def _usable(groups: list[RunGroup]) -> tuple[list[RunGroup], LeftOut]:
    """Drop runs without settings or not trained to the end, merge groups with equal settings, keep one run per seed."""
    left_out: LeftOut = defaultdict(list)
    merged: dict[str, dict[int, Run]] = {}  # settings -> seed -> run
    labels: dict[str, str] = {}
    for group in groups:
        for run in group.runs:
            name = str(run.path)
            if not run.has_config:
                left_out["no config.yaml"].append(name)
            elif run.failed_to_start:
                left_out["still starting, or failed before the first step"].append(name)
            elif text := unfinished(run):
                left_out["not trained to the last step"].append(f"{name} ({text})")
            else:
                key = repr((settings_of_method(run), training_conditions(run)))
                labels.setdefault(key, group.label)
                by_seed = merged.setdefault(key, {})
                other = by_seed.setdefault(run.seed, run)
                if other is not run:
                    kept, dropped = (run, other) if run.results and not other.results else (other, run)
                    by_seed[run.seed] = kept
                    left_out["same settings and seed as another run"].append(f"{dropped.path} ({kept.path})")
    for by_seed in merged.values():
        lacking = [str(run.path) for run in by_seed.values() if not run.results]
        if 0 < len(lacking) < len(by_seed):
            left_out["not evaluated"] += lacking
    usable = [RunGroup(labels[key], [by_seed[s] for s in sorted(by_seed)]) for key, by_seed in merged.items()]
    return usable, left_out


def describe_left_out(left_out: LeftOut) -> list[str]:
    """Return a line for each reason, with the first names."""
    return [f"left out, {reason}: {first_names(names)}" for reason, names in left_out.items()]


def paired(a: BySeed, b: BySeed) -> BySeed:
    """Return a - b over their common seeds."""
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


def seed_mean(values: BySeed) -> SeedMean | None:
    """Return the mean over seeds with its interval; None if `values` is empty. Equal values give no interval."""
    if not values:
        return None
    if len(values) < MIN_SEEDS or are_equal([*values.values()]):
        return SeedMean(fmean(values.values()), None, None, len(values))
    return SeedMean(*t_interval(list(values.values())), len(values))


def _not_comparable(conditions: list[dict[str, str]], labels: list[str]) -> str:
    if len(conditions) < 2:
        one = f"{', '.join(labels)} is one method" if labels else "no run is finished"
        return f"nothing to compare: {one}; give runs of two or more methods"
    ours, theirs = conditions[:2]
    differs = "; ".join(f"{k}: {ours.get(k, '-')}, not {theirs.get(k, '-')}" for k in differing(ours, theirs))
    return f"nothing to compare: no two of {', '.join(labels)} share towers, data and length ({differs})"


def _comparison(conditions: dict[str, str], groups: list[RunGroup], by: str, on: tuple[str, ...]) -> MethodComparison:
    readers = rankable([run for group in groups for run in group.runs])
    scores = SCORES | {name: reader for name, reader in readers.items() if name == by}
    measures = {name: replace(measure, datasets=on) for name, measure in {**scores, **GEOMETRY}.items()}
    measured = {name: shared_values(measure, groups) for name, measure in measures.items()}
    scored = [at for at in range(len(groups)) if any(measured[task][at] for task in scores)]
    tasks = [task for task in SCORES if scored and all(measured[task][at] for at in scored)]
    settings = describe_methods(groups)
    labels = method_labels(groups)
    methods = []
    for at, group in enumerate(groups):
        values = {name: by_group[at] for name, by_group in measured.items() if by_group[at]}
        seeds = set.intersection(*(set(values[task]) for task in tasks)) if tasks and at in scored else set()
        if seeds:  # none if no task is scored, or its tasks were scored on different seeds
            values[MEAN] = {seed: fmean(values[task][seed] for task in tasks) for seed in sorted(seeds)}
        sets: dict[str, BySeed] = {}
        for run in group.runs:
            titles = {value_name(row): value_title(row) for row in run.results}
            for measure in (measures[task] for task in scores):
                for name, value in measure.read(run).items():
                    sets.setdefault(titles[name], {})[run.seed] = value
        methods.append(Method(group.label, labels[at], settings[at], values, sets, group.runs))
    ranked = [method for method in methods if method.values.get(by)]
    # methods with one seed come last: their spread over seeds is unknown
    several, single = ([m for m in ranked if (len(m.values[by]) == 1) == alone] for alone in (False, True))
    ordered = [*_best_first(several, by), *_best_first(single, by)]
    chance = _chance([measures[task] for task in (tasks if by == MEAN else [by])], groups)
    unranked = [method for method in methods if method not in ranked]
    return MethodComparison(conditions, by, tasks, ordered, unranked, chance)


def _chance(measures: list[MetricReader], groups: list[RunGroup]) -> float | None:
    """Return the mean chance level of the measures on the data sets of their scores; None if one is unknown."""
    levels, runs = [], [run for group in groups for run in group.runs]
    for measure in measures:
        scored = [run for run in runs if measure.read(run)]
        if not scored:
            return None
        shared = set.intersection(*(set(measure.read(run)) for run in scored))
        score, above = (reader.read(scored[0]) for reader in (measure, replace(measure, above_chance=True)))
        if not shared or not shared <= above.keys():
            return None
        levels.append(fmean(score[name] - above[name] for name in shared))
    return fmean(levels) if levels else None


def _best_first(methods: list[Method], by: str) -> list[Method]:
    """Sort by the mean difference to the other methods, paired by seed where they share seeds.

    With the same seeds for all, this is the order of the means. With different seeds, the means differ by seed, too.
    """

    def lead(a: Method, b: Method) -> float:
        found = paired(a.values[by], b.values[by])
        return fmean(found.values()) if found else fmean(a.values[by].values()) - fmean(b.values[by].values())

    # rounded, so that equal methods keep their order
    return sorted(methods, key=lambda method: -round(math.fsum(lead(method, other) for other in methods), 12))


def shared_values(measure: Measure, groups: list[RunGroup]) -> list[BySeed]:
    """Return each group's values, averaged over the data sets that all scored runs share; {} for an unscored group."""
    scores = [{run.seed: by_dataset for run in group.runs if (by_dataset := measure.read(run))} for group in groups]
    datasets = [set(by_dataset) for by_seed in scores for by_dataset in by_seed.values()]
    shared = set.intersection(*datasets) if datasets else set()
    if not shared:
        return [{} for _ in groups]
    return [{seed: fmean(found[name] for name in shared) for seed, found in by_seed.items()} for by_seed in scores]
