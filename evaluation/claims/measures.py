"""Measures: the numbers of a run that claims compare."""

import math
import re
import statistics
from dataclasses import dataclass
from functools import cache

from evaluation.runs.reader import Run
from evaluation.types import Result

CANONICAL_HELD_OUT = "heldout"  # pairs held out of training: users choose settings on them, so no claim reads them


@dataclass(frozen=True)
class MetricReader:
    """Reads the mean of `metrics` on each data set from the result rows of one task. Data sets have canonical names."""

    task: str
    metrics: tuple[str, ...]
    datasets: tuple[str, ...] = ()  # data sets to include; empty: all but the pairs held out of training
    without: tuple[str, ...] = ()  # data sets to leave out
    above_chance: bool = False  # subtract each row's chance level
    paper_protocol: bool = False  # read only the rows under protocol=paper; False: only the others
    pool: int | None = None  # retrieval: read only rows of a pool of this many images; None: only rows of all images
    per_class: tuple[str, ...] = ()  # data sets on which mean_per_class replaces top1

    def read(self, run: Run) -> dict[str, float]:
        """Return "TASK DATASET" -> value for data sets with every metric. The last of repeated evaluations counts."""
        found: dict[str, dict[str, dict[str, float]]] = {}  # data set -> split -> metric -> value
        for row in run.results:
            if row.task != self.task:
                continue
            dataset = canonical_name(row.dataset)
            chance = row.chance if self.above_chance else 0.0
            if chance is not None and row.metric in self._metrics(dataset) and self._selects(row, dataset):
                found.setdefault(dataset, {}).setdefault(row.split, {})[row.metric] = row.value - chance
        chosen = {f"{self.task} {dataset}": _whole_split(by_split) for dataset, by_split in found.items()}
        return {
            name: statistics.fmean(values.values())
            for name, values in chosen.items()
            if len(values) == len(self.metrics)
        }

    def _metrics(self, dataset: str) -> tuple[str, ...]:
        per_class = dataset in self.per_class
        return tuple(m.replace("top1", "mean_per_class") for m in self.metrics) if per_class else self.metrics

    def _selects(self, row: Result, dataset: str) -> bool:
        included = dataset in self.datasets if self.datasets else dataset not in (CANONICAL_HELD_OUT, *self.without)
        same_protocol = row.split.endswith(", paper protocol") == self.paper_protocol
        pool = re.search(r"(\d+) of \d+ images \(seed", row.split)
        same_pool = (int(pool[1]) if pool else None) == self.pool
        return included and same_protocol and same_pool and math.isfinite(row.value)


def _whole_split(by_split: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the values of a split without a suffix ("test"); if none, of the first split ("test, prompts simple")."""
    return by_split[next((split for split in by_split if ", " not in split), next(iter(by_split)))]


@dataclass(frozen=True)
class CombinedReader:
    """The values of several readers together."""

    readers: tuple[MetricReader, ...]

    def read(self, run: Run) -> dict[str, float]:
        """Return the values of all readers; {} if one of them finds none."""
        found = [reader.read(run) for reader in self.readers]
        return {name: value for values in found for name, value in values.items()} if all(found) else {}


@dataclass(frozen=True)
class SideReader:
    """The values of several readers on one side of a fine-tuning: on the sets in data.kept, or on all other sets."""

    kept: bool
    readers: tuple[MetricReader, ...]

    def read(self, run: Run) -> dict[str, float]:
        """Return the values of this side's data sets; {} if the run's config has no data.kept."""
        data = run.config.get("data") or {}
        kept = {canonical_name(str(name)) for name in data.get("kept") or []}
        found = {name: value for reader in self.readers for name, value in reader.read(run).items()}
        return {name: v for name, v in found.items() if kept and (name.partition(" ")[2] in kept) == self.kept}


@dataclass(frozen=True)
class SpreadOfMean:
    """Standard deviation of a point-set model's mean zero-shot accuracy between draws of its random features.

    All data sets use the same draws, so each draw has one mean accuracy over the data sets.
    """

    per_class: tuple[str, ...] = ()  # data sets on which the mean per-class accuracy replaces top-1

    def read(self, run: Run) -> dict[str, float]:
        """Return {"spread": value}; {} without an artifact of the task zeroshot_draws."""
        by_dataset = {
            canonical_name(dataset): artifact
            for dataset, artifact in run.artifacts_of("zeroshot_draws")
            if ", prompts " not in dataset
        }
        scores = [
            artifact["mean_per_class" if dataset in self.per_class else "top1"]
            for dataset, artifact in by_dataset.items()
        ]
        means = [statistics.fmean(of_draw) for of_draw in zip(*scores, strict=True)]
        return {"spread": statistics.stdev(means)} if means else {}


@dataclass(frozen=True)
class SlowClosure:
    """R^2 of a linear fit of the logged gap against 1/log^2 t after step 100 (paper 4, figure 4).

    Negative if the line falls with 1/log^2 t, that is, if the gap grows with time.
    """

    after: int = 100  # steps

    def read(self, run: Run) -> dict[str, float]:
        """Return {"R^2": value}; {} with fewer than ten logged steps."""
        points = [(1 / math.log(step) ** 2, gap) for step, gap in logged_gaps(run) if step > self.after]
        return {"R^2": signed_r_squared(points)} if len(points) >= 10 else {}


@dataclass(frozen=True)
class FinalGap:
    """The gap at the end of training: mean of the logged values in the last tenth of the steps.

    A mean, because the gap still moves up and down from step to step, above all with small batches.
    """

    def read(self, run: Run) -> dict[str, float]:
        """Return {"final gap": value}; {} if no gap was logged after initialisation."""
        logged = logged_gaps(run)
        last = max((step for step, _ in logged), default=0)
        values = [gap for step, gap in logged if step >= 0.9 * last]
        return {"final gap": statistics.fmean(values)} if last else {}


@dataclass(frozen=True)
class EarlyChange:
    """The gap after `steps` steps minus the gap at initialisation."""

    steps: int = 10

    def read(self, run: Run) -> dict[str, float]:
        """Return {"change": value}; {} if one of the two gaps was not logged."""
        gap = dict(logged_gaps(run))
        return {"change": gap[self.steps] - gap[0]} if {0, self.steps} <= set(gap) else {}


def logged_gaps(run: Run) -> list[tuple[int, float]]:
    """Return (step, gap) of each gap that was logged during training."""
    logged = [(line["step"], line["geometry"].get("gap")) for line in run.log if isinstance(line.get("geometry"), dict)]
    return [(int(step), float(gap)) for step, gap in logged if isinstance(gap, int | float)]


def signed_r_squared(points: list[tuple[float, float]]) -> float:
    """Return R^2 of a linear fit of y on x, with the sign of its slope; 0 if x or y is constant."""
    try:
        correlation = statistics.correlation([x for x, _ in points], [y for _, y in points])
    except statistics.StatisticsError:  # constant input
        return 0.0
    return math.copysign(correlation**2, correlation)


@cache
def canonical_name(dataset: str) -> str:
    """Return a data set's name in lower case without prefix, split, punctuation: `cifar10` for `wds_CIFAR-10/test`."""
    name = re.sub(r"/(train|val|dev|test)$", "", dataset.lower()).rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "", name.removeprefix("wds_").removeprefix("vtab-").removeprefix("vtab_"))
