"""From result rows to what a reader wants first: one number a measure, its interval, and chance."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluation.runs import Run
from evaluation.types import Result

Standing = Literal["above chance", "not different", "below chance", "no chance level"]


@dataclass(frozen=True)
class Group:
    """The seeds of one run."""

    label: str
    runs: list[Run]


@dataclass(frozen=True)
class Measure:
    """A metric of one group: the mean over its seeds, or the single seed's value."""

    group: Group
    task: str
    dataset: str
    split: str
    metric: str
    value: float
    low: float  # 95%: Student's t over the seeds, or the single row's own bootstrap
    high: float
    own_low: float  # mean of the seeds' own bootstrap intervals
    own_high: float
    seeds: int
    n: int  # examples behind each seed's value
    chance: float | None
    higher_is_better: bool

    @property
    def standing(self) -> Standing:
        """Where the interval lies; touching chance is not different.

        The seeds share their examples: that they agree does not make few examples many. So the seeds' own
        intervals must be clear of chance as well (three seeds with 11 of 40 right are not above 0.25).
        """
        if self.chance is None:
            return "no chance level"
        if min(self.low, self.own_low) > self.chance:
            return "above chance"
        return "below chance" if max(self.high, self.own_high) < self.chance else "not different"

    @property
    def source(self) -> str:
        """Where the interval comes from."""
        return f"t, {self.seeds} seeds" if self.seeds > 1 else "bootstrap"


def group(runs: list[Run]) -> list[Group]:
    """Runs of one name in one folder are the seeds of a group; the label is unique."""
    members: dict[tuple[Path, str], list[Run]] = {}
    for run in runs:
        members.setdefault((run.path.resolve().parent, run.name), []).append(run)
    names = [name for _, name in members]
    return [
        Group(label=name if names.count(name) == 1 else f"{name} ({runs[0].path.parent})", runs=runs)
        for (_, name), runs in members.items()
    ]


def measures(groups: list[Group]) -> list[Measure]:
    """Every metric of every group, by task, data set and metric, so that groups to compare are neighbours.

    A run that was evaluated several times counts once: with the last row written for a metric.
    """
    found: dict[tuple[str, str, str, str], list[Measure]] = {}
    for one in groups:
        rows: dict[tuple[str, str, str, str], list[Result]] = {}
        for run in one.runs:
            for key, row in {(r.task, r.dataset, r.split, r.metric): r for r in run.results}.items():
                rows.setdefault(key, []).append(row)
        for key, of_seeds in rows.items():
            found.setdefault(key, []).append(_measure(one, of_seeds))
    tasks = list(dict.fromkeys(key[0] for key in found))
    splits = list(dict.fromkeys(key[:3] for key in found))
    order = sorted(found, key=lambda key: (tasks.index(key[0]), splits.index(key[:3])))  # as first evaluated
    return [measure for key in order for measure in found[key]]


def _measure(group: Group, rows: list[Result]) -> Measure:
    first = rows[0]
    value, low, high = first.value, first.low, first.high
    if len(rows) > 1:
        value, low, high = t_interval([row.value for row in rows])
    return Measure(
        group=group,
        task=first.task,
        dataset=first.dataset,
        split=first.split,
        metric=first.metric,
        value=value,
        low=low,
        high=high,
        own_low=_mean([row.low for row in rows]),
        own_high=_mean([row.high for row in rows]),
        seeds=len(rows),
        n=first.n,
        chance=first.chance,
        higher_is_better=first.higher_is_better,
    )


def t_interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and 95% interval of the mean of at least two independent values (Student's t, n - 1 degrees)."""
    n, mean = len(values), _mean(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = t_quantile(n - 1) * math.sqrt(variance / n)
    return mean, mean - half, mean + half


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def t_quantile(degrees: int) -> float:
    """The t with 95% of Student's distribution between -t and t, by bisection."""
    low, high = 1.9, 13.0  # 1.96 for endless degrees, 12.7 for one
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_mass(middle, degrees) < 0.95 else (low, middle)
    return (low + high) / 2


def _central_mass(t: float, degrees: int) -> float:
    """P(-t < T < t) for integer degrees (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    theta = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = math.cos(theta) if odd else 1.0, 0.0
    for j in range(1, degrees // 2 + 1):
        total += term
        term *= (2 * j / (2 * j + 1) if odd else (2 * j - 1) / (2 * j)) * math.cos(theta) ** 2
    return 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total
