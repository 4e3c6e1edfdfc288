"""Methods under the same conditions: which is better, by paired seeds.

Runs are comparable if towers, training data, length and batch size are the same; with the same seed they then saw the
same samples in the same order. What may differ is the method: objective, temperature, mixing, point sets, optimizer
and schedule. The measures are those of the claims, over the data sets that all compared runs share.
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
from evaluation.claims.verdict import FEWEST_SEEDS
from evaluation.runs.description import flat, objective
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run
from evaluation.statistics import t_interval

TASKS: dict[str, Measure] = {
    "zeroshot": ZEROSHOT,
    "linear_probe": PROBE,
    "retrieval": RECALL_1,
    "pairs": PAIR_ACCURACY,
}
GEOMETRY: dict[str, Measure] = {
    "gap": GAP,
    "uniformity": UNIFORMITY,
    "alignment": MetricReader("geometry", ("alignment",)),
    "margin": MARGIN,
}
MEAN = "mean"  # of the tasks that all methods have

SAME = {
    "model.embed_dim",
    *(f"model.{side}.{key}" for side in ("image", "text") for key in ("name", "pretrained", "frozen")),
    "model.init",
    "model.image.size",
    "model.text.context_length",
    *(f"train.{key}" for key in ("epochs", "samples", "batch_size")),
}
LABELS = ("data.keywords", "data.keyword_digits")  # what an objective asks for; pairs stay what they are
NAMES = ("name", "recipe", "arm", "seed", "objective")  # neither a condition nor a setting of the method

BySeed = dict[int, float]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, with its 95% interval from FEWEST_SEEDS seeds on (Student's t)."""

    value: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def sign(self) -> int:
        """1 or -1 where the whole interval lies on one side of 0."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)


@dataclass(frozen=True)
class Method:
    """Runs of one name, one a seed."""

    label: str
    settings: str  # the objective, and what else most others do not have
    values: dict[str, BySeed]  # of TASKS and GEOMETRY by name, and MEAN; what no run has is missing
    diverged: int  # seeds


@dataclass(frozen=True)
class MethodComparison:
    """Methods run under identical conditions: those with a value for `by`, best first, then the rest."""

    conditions: dict[str, str]
    by: str  # what they are ranked by
    tasks: list[str]  # that all ranked methods have, which MEAN is the mean of
    ranked: list[Method]
    unranked: list[Method]

    def difference(self, a: Method, b: Method) -> Estimate | None:
        """a minus b in what they are ranked by, over the seeds of both."""
        of_a, of_b = a.values[self.by], b.values[self.by]
        return estimate({seed: of_a[seed] - of_b[seed] for seed in of_a if seed in of_b})

    def ranks(self, method: Method) -> tuple[int, int]:
        """The first and the last rank that the paired intervals leave it."""
        signs = [d.sign for o in self.ranked if o is not method and (d := self.difference(o, method))]
        return 1 + signs.count(1), len(self.ranked) - signs.count(-1)


def compare(groups: list[RunGroup], by: str = MEAN) -> tuple[list[MethodComparison], list[str]]:
    """The comparisons that the runs allow, and a line for each run that has no partner.

    Raises:
        UserError: no two methods under the same conditions; says what differs.
    """
    of_conditions: dict[tuple[tuple[str, str], ...], list[RunGroup]] = {}
    left_out = []
    for group in groups:
        if group.runs[0].config:
            of_conditions.setdefault(tuple(conditions(group.runs[0]).items()), []).append(group)
        else:
            left_out.append(f"left out, no config.yaml: {group.label}")
    several = {key: same for key, same in of_conditions.items() if len(same) > 1}
    if not several:
        raise UserError(_nothing(list(of_conditions), [group.label for group in groups]))
    first = dict(next(iter(several)))
    for key, same in of_conditions.items():
        if len(same) == 1:
            differs = differing(dict(key), first) or "nothing"
            left_out.append(f"left out, no other run under the same conditions: {same[0].label} ({differs})")
    return [_comparison(dict(key), same, by) for key, same in several.items()], left_out


def conditions(run: Run) -> dict[str, str]:
    """Towers, data, length and batch size: what compared runs must have in common."""
    given = _settings_of(run)
    return {key: given[key] for key in identity_keys(RunConfig()) if _is_condition(key, given)}


def _settings_of(run: Run) -> dict[str, str]:
    """By dotted name; what an older run does not say has the default."""
    return dict(flat(asdict(RunConfig()))) | dict(flat(run.config))


def _is_condition(key: str, given: dict[str, str]) -> bool:
    if key.startswith("data.scenes."):
        return given.get("data.source") == "scenes"
    return key in SAME or (key.startswith("data.") and key not in LABELS)


def differing(one: dict[str, str], other: dict[str, str]) -> str:
    """`key: this, there that` of the settings that two runs do not share."""
    keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    return "; ".join(f"{key}: {one.get(key, '-')}, not {other.get(key, '-')}" for key in keys)


def estimate(values: BySeed) -> Estimate | None:
    """Nothing of no value."""
    if not values:
        return None
    if len(values) < FEWEST_SEEDS:
        return Estimate(fmean(values.values()), None, None, len(values))
    return Estimate(*t_interval(list(values.values())), len(values))


def _nothing(found: list[tuple[tuple[str, str], ...]], labels: list[str]) -> str:
    if len(found) < 2:
        return f"nothing to compare: {', '.join(labels)} is one method; give runs of two or more"
    differs = differing(dict(found[0]), dict(found[1]))
    return f"nothing to compare: no two of {', '.join(labels)} share towers, data and length ({differs})"


def _comparison(shared: dict[str, str], groups: list[RunGroup], by: str) -> MethodComparison:
    measured = {name: _values(measure, groups) for name, measure in {**TASKS, **GEOMETRY}.items()}
    scored = [at for at in range(len(groups)) if any(measured[task][at] for task in TASKS)]
    tasks = [task for task in TASKS if scored and all(measured[task][at] for at in scored)]
    described = _settings(groups)
    methods = []
    for at, group in enumerate(groups):
        values = {name: of_groups[at] for name, of_groups in measured.items() if of_groups[at]}
        if tasks and at in scored:
            seeds = set.intersection(*(set(values[task]) for task in tasks))
            values[MEAN] = {seed: fmean(values[task][seed] for task in tasks) for seed in sorted(seeds)}
        diverged = sum(run.diverged for run in group.runs)
        methods.append(Method(group.label, described[at], values, diverged))
    ranked = [method for method in methods if method.values.get(by)]
    ranked.sort(key=lambda method: -fmean(method.values[by].values()))
    return MethodComparison(shared, by, tasks, ranked, [method for method in methods if method not in ranked])


def _values(measure: Measure, groups: list[RunGroup]) -> list[BySeed]:
    """Of each group, its seeds' means over the pieces (data sets) that all runs have; {} for a group without any."""
    read = [{run.seed: pieces for run in group.runs if (pieces := measure.read(run))} for group in groups]
    of_runs = [set(pieces) for of_group in read for pieces in of_group.values()]
    common = set.intersection(*of_runs) if of_runs else set()
    return [
        {seed: math.fsum(pieces[key] for key in common) / len(common) for seed, pieces in of_group.items() if common}
        for of_group in read
    ]


def _settings(groups: list[RunGroup]) -> list[str]:
    """A method's objective, and its settings where most others have another value."""
    of_groups = [dict(_method(group.runs[0])) for group in groups]
    usual = {
        key: Counter(settings.get(key) for settings in of_groups).most_common(1)[0][0]
        for key in {key: None for settings in of_groups for key in settings}
    }
    found = []
    for group, settings in zip(groups, of_groups, strict=True):
        others = [f"{key}={value}" for key, value in settings.items() if value != usual[key]]
        found.append("; ".join([objective(group.runs[0]), *others]))
    return found


def _method(run: Run) -> list[tuple[str, str]]:
    """Settings that are neither conditions nor words for the objective."""
    given = _settings_of(run)
    keys = [key for key in identity_keys(RunConfig()) if key not in NAMES]
    return [(key, given[key]) for key in keys if not _is_condition(key, given) and not key.startswith("data.scenes.")]
