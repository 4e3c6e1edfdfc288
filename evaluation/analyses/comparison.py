"""Comparison of methods trained under the same conditions, with differences paired by seed.

Runs are comparable if towers, training data, length and batch size are the same. Runs with the same seed then see the
same samples in the same order. The method may differ: objective, temperature, mixing, point sets, optimizer, schedule.
Scores are the claims' measures, averaged over the data sets that all compared runs share.
"""

import math
from collections import Counter
from dataclasses import asdict, dataclass
from statistics import fmean

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.run.directory import identity_keys
from evaluation.claims.measures import MetricReader
from evaluation.claims.names import GAP, MARGIN, PAIR_ACCURACY, PROBE, RECALL_1, UNIFORMITY, ZEROSHOT
from evaluation.claims.types import Measure
from evaluation.runs.description import flat, objective
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run
from evaluation.statistics import t_interval

TASKS: dict[str, Measure] = {"zeroshot": ZEROSHOT, "linear_probe": PROBE, "retrieval": RECALL_1, "pairs": PAIR_ACCURACY}
GEOMETRY: dict[str, Measure] = {
    "gap": GAP,
    "uniformity": UNIFORMITY,
    "alignment": MetricReader("geometry", ("alignment",)),
    "margin": MARGIN,
}
MIN_SEEDS = 3  # of an interval
MEAN = "mean"  # over the tasks that all methods have

CONDITIONS = {  # must be equal, besides the data settings
    "model.embed_dim",
    *(f"model.{side}.{key}" for side in ("image", "text") for key in ("name", "pretrained", "frozen")),
    "model.init",
    "model.image.size",
    "model.text.context_length",
    *(f"train.{key}" for key in ("epochs", "samples", "batch_size")),
}
KEYWORDS = ("data.keywords", "data.keyword_digits")  # no condition: they label pairs and do not change them
NAMES = ("name", "recipe", "arm", "seed", "objective")  # neither conditions nor listed as settings of a method

BySeed = dict[int, float]


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds with its 95% interval (Student's t), which needs at least MIN_SEEDS seeds."""

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


@dataclass(frozen=True)
class Method:
    """Runs with the same name, one per seed."""

    label: str
    settings: str  # objective, then the settings that differ from most other methods
    values: dict[str, BySeed]  # name (TASKS, GEOMETRY, MEAN) -> values; names without values are left out
    diverged: int  # number of diverged seeds


@dataclass(frozen=True)
class MethodComparison:
    """Methods trained under identical conditions."""

    conditions: dict[str, str]  # setting -> value
    by: str  # ranking score: MEAN or a name in TASKS
    tasks: list[str]  # tasks that MEAN averages: all scored methods have them
    ranked: list[Method]  # best first
    unranked: list[Method]  # without a value of `by`

    def difference(self, a: Method, b: Method) -> Estimate | None:
        """Return the mean difference a - b in the ranking score over common seeds; None without common seeds."""
        of_a, of_b = a.values[self.by], b.values[self.by]
        return estimate({seed: of_a[seed] - of_b[seed] for seed in of_a if seed in of_b})

    def ranks(self, method: Method) -> tuple[int, int]:
        """Return the best and the worst rank that the paired intervals allow."""
        others = [other for other in self.ranked if other is not method]
        signs = [difference.sign for other in others if (difference := self.difference(other, method))]
        return 1 + signs.count(1), len(self.ranked) - signs.count(-1)


def compare(groups: list[RunGroup], by: str = MEAN) -> tuple[list[MethodComparison], list[str]]:
    """Return the comparisons that the runs allow, and one line for each group that cannot be compared.

    Raises UserError: no two methods share their conditions; the message lists the settings that differ.
    """
    by_conditions: dict[tuple[tuple[str, str], ...], list[RunGroup]] = {}
    left_out = []
    for group in groups:
        if group.runs[0].config:
            by_conditions.setdefault(tuple(_conditions(group.runs[0]).items()), []).append(group)
        else:
            left_out.append(f"left out, no config.yaml: {group.label}")
    comparable = {key: members for key, members in by_conditions.items() if len(members) > 1}
    if not comparable:
        raise UserError(_not_comparable([dict(key) for key in by_conditions], [group.label for group in groups]))
    reference = dict(next(iter(comparable)))
    for key, members in by_conditions.items():
        if len(members) == 1:
            differs = _differences(dict(key), reference) or "nothing"
            left_out.append(f"left out, no other run under the same conditions: {members[0].label} ({differs})")
    return [_comparison(dict(key), members, by) for key, members in comparable.items()], left_out


def estimate(values: BySeed) -> Estimate | None:
    """Return the mean over seeds with its interval; None if empty."""
    if not values:
        return None
    if len(values) < MIN_SEEDS:
        return Estimate(fmean(values.values()), None, None, len(values))
    return Estimate(*t_interval(list(values.values())), len(values))


def _conditions(run: Run) -> dict[str, str]:
    settings = _all_settings(run)
    return {key: settings[key] for key in identity_keys() if _is_condition(key, settings)}


def _all_settings(run: Run) -> dict[str, str]:
    """Return settings by dotted name. A setting that an older run lacks has its default value."""
    return dict(flat(asdict(RunConfig()))) | dict(flat(run.config))


def _is_condition(key: str, settings: dict[str, str]) -> bool:
    if key.startswith("data.scenes."):
        return settings.get("data.source") == "scenes"
    return key in CONDITIONS or (key.startswith("data.") and key not in KEYWORDS)


def _differences(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """Return `key: our value, not their value` of the settings that differ."""
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    return "; ".join(f"{key}: {ours.get(key, '-')}, not {theirs.get(key, '-')}" for key in keys)


def _not_comparable(conditions: list[dict[str, str]], labels: list[str]) -> str:
    if len(conditions) < 2:
        return f"nothing to compare: {', '.join(labels)} is one method; give runs of two or more"
    differs = _differences(conditions[0], conditions[1])
    return f"nothing to compare: no two of {', '.join(labels)} share towers, data and length ({differs})"


def _comparison(conditions: dict[str, str], groups: list[RunGroup], by: str) -> MethodComparison:
    measured = {name: _values(measure, groups) for name, measure in {**TASKS, **GEOMETRY}.items()}
    scored = [at for at in range(len(groups)) if any(measured[task][at] for task in TASKS)]
    tasks = [task for task in TASKS if scored and all(measured[task][at] for at in scored)]
    settings = _method_settings(groups)
    methods = []
    for at, group in enumerate(groups):
        values = {name: by_group[at] for name, by_group in measured.items() if by_group[at]}
        if tasks and at in scored:
            seeds = set.intersection(*(set(values[task]) for task in tasks))
            values[MEAN] = {seed: fmean(values[task][seed] for task in tasks) for seed in sorted(seeds)}
        diverged = sum(run.diverged for run in group.runs)
        methods.append(Method(group.label, settings[at], values, diverged))
    ranked = [method for method in methods if method.values.get(by)]
    ranked.sort(key=lambda method: -fmean(method.values[by].values()))
    return MethodComparison(conditions, by, tasks, ranked, [method for method in methods if method not in ranked])


def _values(measure: Measure, groups: list[RunGroup]) -> list[BySeed]:
    """Return the values of each group, averaged over the data sets that all runs have; {} if it has none."""
    scores = [{run.seed: by_dataset for run in group.runs if (by_dataset := measure.read(run))} for group in groups]
    datasets = [set(by_dataset) for by_seed in scores for by_dataset in by_seed.values()]
    shared = set.intersection(*datasets) if datasets else set()
    return [
        {seed: math.fsum(by_dataset[name] for name in shared) / len(shared) for seed, by_dataset in by_seed.items()}
        if shared
        else {}
        for by_seed in scores
    ]


def _method_settings(groups: list[RunGroup]) -> list[str]:
    """Return each group's objective, and its settings that differ from the most common value."""
    by_group = []
    for group in groups:
        settings = _all_settings(group.runs[0])
        keys = [key for key in identity_keys() if key not in NAMES and not key.startswith("data.scenes.")]
        by_group.append({key: settings[key] for key in keys if not _is_condition(key, settings)})
    all_keys = {key: None for settings in by_group for key in settings}
    usual = {key: Counter(settings.get(key) for settings in by_group).most_common(1)[0][0] for key in all_keys}
    return [
        "; ".join([
            objective(group.runs[0]),
            *(f"{key}={value}" for key, value in settings.items() if value != usual[key]),
        ])
        for group, settings in zip(groups, by_group, strict=True)
    ]  # fmt: skip
