"""Numbers of a run that claims are made of."""

import math
import re
from dataclasses import dataclass
from statistics import median

from evaluation.runs.reader import Run
from evaluation.types import Result


@dataclass(frozen=True)
class MetricReader:
    """Result rows of one task: a piece a data set, the mean over `metrics`."""

    task: str
    metrics: tuple[str, ...]
    datasets: tuple[str, ...] = ()  # by `plain` name; empty: all
    without: tuple[str, ...] = ()  # left out, by `plain` name
    above_chance: bool = False  # the value minus its chance level
    paper_protocol: bool = False  # rows under protocol=paper, which others leave out
    pool: int | None = None  # rows of retrieval among so many images, which others leave out
    per_class: tuple[str, ...] = ()  # data sets whose top1 is mean_per_class instead, by `plain` name

    def read(self, run: Run) -> dict[str, float]:
        """Data set -> value; only data sets that have every metric."""
        found: dict[str, dict[str, dict[str, float]]] = {}  # data set -> split -> metric -> value
        for row in run.results:  # of repeated evaluations the last one counts
            if row.task == self.task and row.metric in self._metrics(plain(row.dataset)) and self._takes(row):
                chance = row.chance if self.above_chance else 0.0
                if chance is not None:
                    of_split = found.setdefault(plain(row.dataset), {}).setdefault(row.split, {})
                    of_split[row.metric] = row.value - chance
        chosen = {f"{self.task} {dataset}": _usual(of_splits) for dataset, of_splits in found.items()}
        return {
            dataset: math.fsum(values.values()) / len(values)
            for dataset, values in chosen.items()
            if len(values) == len(self.metrics)
        }

    def _metrics(self, dataset: str) -> tuple[str, ...]:
        per_class = dataset in self.per_class
        return tuple(m.replace("top1", "mean_per_class") for m in self.metrics) if per_class else self.metrics

    def _takes(self, row: Result) -> bool:
        dataset = plain(row.dataset)
        wanted = dataset not in self.without and (not self.datasets or dataset in self.datasets)
        same_protocol = row.split.endswith(", paper protocol") == self.paper_protocol
        pool = re.search(r"(\d+) of \d+ images \(seed", row.split)
        same_pool = (int(pool[1]) if pool else None) == self.pool
        return wanted and same_protocol and same_pool and math.isfinite(row.value)


def _usual(of_splits: dict[str, dict[str, float]]) -> dict[str, float]:
    """Rows without a remark after the split's name ("test, prompts simple") before those with one."""
    return of_splits[next((split for split in of_splits if ", " not in split), next(iter(of_splits)))]


@dataclass(frozen=True)
class Together:
    """The mean over the pieces of several scores."""

    scores: tuple[MetricReader, ...]

    def read(self, run: Run) -> dict[str, float]:
        """The pieces of all; none where one of the scores has none."""
        pieces = [score.read(run) for score in self.scores]
        return {key: value for of_one in pieces for key, value in of_one.items()} if all(pieces) else {}


@dataclass(frozen=True)
class Setting:
    """A number of the run's config.yaml, e.g. temperature.tau."""

    key: str

    def read(self, run: Run) -> dict[str, float]:
        """{} where it is no number."""
        value: object = run.config
        for part in self.key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return {self.key: float(value)} if isinstance(value, int | float) else {}


@dataclass(frozen=True)
class StepTime:
    """Seconds that a step computes: the median of what is logged as step_s, the first tenth of the log left out.

    Waiting for data is no part of it, nor are saving and measuring between steps: with them a slow disk would make all
    runs alike.
    """

    def read(self, run: Run) -> dict[str, float]:
        """{} where nothing was logged."""
        lines = [line["step_s"] for line in run.log[len(run.log) // 10 :] if isinstance(line.get("step_s"), dict)]
        seconds = [math.fsum(s for phase, s in of_line.items() if phase != "data") for of_line in lines]
        known = [spent for spent in seconds if spent > 0]
        return {"step": median(known)} if known else {}


@dataclass(frozen=True)
class SlowClosure:
    """How well the logged gap lies on a line in 1/log^2 t after step 100 (paper 4, figure 4): R^2.

    Negative where the line falls with 1/log^2 t, that is, where the gap grows with time.
    """

    after: int = 100  # steps

    def read(self, run: Run) -> dict[str, float]:
        """{} where fewer than ten steps were logged with their geometry."""
        points = [(1 / math.log(step) ** 2, gap) for step, gap in logged(run, "gap") if step > self.after]
        return {"R^2": signed_r_squared(points)} if len(points) >= 10 else {}


@dataclass(frozen=True)
class EarlyChange:
    """The gap after `steps` steps minus that at initialisation."""

    steps: int = 10

    def read(self, run: Run) -> dict[str, float]:
        """{} where one of the two was not logged."""
        gap = dict(logged(run, "gap"))
        return {"change": gap[self.steps] - gap[0]} if {0, self.steps} <= set(gap) else {}


def logged(run: Run, name: str) -> list[tuple[int, float]]:
    """Step and value of the geometry that was logged while training."""
    found = []
    for line in run.log:
        geometry = line.get("geometry")
        if isinstance(geometry, dict) and isinstance(geometry.get(name), int | float):
            found.append((int(line["step"]), float(geometry[name])))
    return found


def signed_r_squared(points: list[tuple[float, float]]) -> float:
    """Share of the variance that a line explains, with the sign of its slope; 0 without variance."""
    n = len(points)
    mx, my = (math.fsum(p[axis] for p in points) / n for axis in (0, 1))
    xy = math.fsum((x - mx) * (y - my) for x, y in points)
    xx = math.fsum((x - mx) ** 2 for x, _ in points)
    yy = math.fsum((y - my) ** 2 for _, y in points)
    return math.copysign(xy * xy / (xx * yy), xy) if xx * yy > 0 else 0.0


def plain(dataset: str) -> str:
    """A data set's name however its folder was called: `wds_cifar-10/test` is `cifar10`."""
    name = re.sub(r"/(train|val|dev|test)$", "", dataset.lower()).rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "", name.removeprefix("wds_").removeprefix("vtab-").removeprefix("vtab_"))
