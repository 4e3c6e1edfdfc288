"""From result rows to what a reader wants first: one number a measure, its interval, and chance."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluation.runs.reader import Run
from evaluation.statistics import mean, t_interval
from evaluation.types import Result

Standing = Literal["above chance", "not different", "below chance", "no chance level"]


@dataclass(frozen=True)
class RunGroup:
    """The seeds of one run."""

    label: str
    runs: list[Run]


@dataclass(frozen=True)
class MetricSummary:
    """A metric of one group: the mean over its seeds, or the single seed's value."""

    group: RunGroup
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


def group_runs(runs: list[Run]) -> list[RunGroup]:
    """Runs of one name in one folder are the seeds of a group; the label is unique."""
    members: dict[tuple[Path, str], list[Run]] = {}
    for run in runs:
        members.setdefault((run.path.resolve().parent, run.name), []).append(run)
    names = [name for _, name in members]
    return [
        RunGroup(label=name if names.count(name) == 1 else f"{name} ({runs[0].path.parent})", runs=runs)
        for (_, name), runs in members.items()
    ]


def summarise_metrics(groups: list[RunGroup]) -> list[MetricSummary]:
    """Every metric of every group, by task, data set and metric, so that groups to compare are neighbours.

    A run that was evaluated several times counts once: with the last row written for a metric.
    """
    found: dict[tuple[str, str, str, str], list[MetricSummary]] = {}
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


def _measure(group: RunGroup, rows: list[Result]) -> MetricSummary:
    first = rows[0]
    value, low, high = first.value, first.low, first.high
    if len(rows) > 1:
        value, low, high = t_interval([row.value for row in rows])
    return MetricSummary(
        group=group,
        task=first.task,
        dataset=first.dataset,
        split=first.split,
        metric=first.metric,
        value=value,
        low=low,
        high=high,
        own_low=mean([row.low for row in rows]),
        own_high=mean([row.high for row in rows]),
        seeds=len(rows),
        n=first.n,
        chance=first.chance,
        higher_is_better=first.higher_is_better,
    )
