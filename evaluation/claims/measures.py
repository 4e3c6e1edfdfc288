"""Measures: the numbers of a run that claims compare; and the measures and data sets of the papers."""

import math
import re
import statistics
from dataclasses import dataclass
from functools import cache

from evaluation.claims.types import Measure
from evaluation.runs.reader import Run
from evaluation.runs.results import TRAINING_PAIRS
from evaluation.types import Result

TEST = "test"  # the split that the papers report
OTHER_SPLIT = re.compile(r"/(train|val|dev)$")  # at the end of a data set's name
CANONICAL_HELD_OUT = "heldout"  # pairs held out of training: users choose settings on them, so no claim reads them


@dataclass(frozen=True)
class MetricReader(Measure):
    """Reads the mean of `metrics` on each data set from the result rows of one task. Data sets have canonical names."""

    task: str
    metrics: tuple[str, ...]
    datasets: tuple[str, ...] = ()  # NAME or NAME/SPLIT to include; empty: all but held-out pairs and training pairs
    without: tuple[str, ...] = ()  # data sets to leave out if `datasets` is empty
    above_chance: bool = False  # subtract each row's chance level
    paper_protocol: bool = False  # read only the rows under protocol=paper; False: only the others
    pool: int | None = None  # retrieval: read only rows of a pool of this many images; None: only rows of all images
    per_class: tuple[str, ...] = ()  # data sets on which mean_per_class replaces top1

    def read(self, run: Run) -> dict[str, float]:
        """Return name (see `value_name`) -> value of the data sets for which a run has all metrics.

        A data set has one value, because splits and other prompts must not be averaged: that of the split `test` with
        the default choices; if it has none, the first by name. The last of repeated evaluations counts.
        """
        found: dict[str, dict[_SplitParts, dict[str, float]]] = {}  # data set -> split and choices -> metric -> value
        for row in run.results:
            if row.task != self.task:
                continue
            dataset, parts = canonical_name(row.dataset), _parse_split(row.dataset, row.split)
            chance = row.chance if self.above_chance else 0.0
            if chance is not None and row.metric in self._metrics(dataset) and self._selects(row, dataset, parts):
                found.setdefault(dataset, {}).setdefault(parts, {})[row.metric] = row.value - chance
        chosen = {}
        for dataset, by_split in found.items():
            complete = [parts for parts, values in by_split.items() if len(values) == len(self.metrics)]
            if complete:
                first = min(complete, key=_SplitParts.order)
                chosen[first.name(self.task, dataset)] = statistics.fmean(by_split[first].values())
        return chosen

    def _metrics(self, dataset: str) -> tuple[str, ...]:
        per_class = dataset in self.per_class
        return tuple(m.replace("top1", "mean_per_class") for m in self.metrics) if per_class else self.metrics

    def _selects(self, row: Result, dataset: str, parts: "_SplitParts") -> bool:
        if self.datasets:
            included = dataset in self.datasets or _with_split(dataset, parts.split) in self.datasets
        else:
            included = dataset not in (CANONICAL_HELD_OUT, *self.without) and TRAINING_PAIRS not in row.hashes
        same = parts.paper_protocol == self.paper_protocol and parts.pool == self.pool
        return included and same and math.isfinite(row.value)


@dataclass(frozen=True)
class _SplitParts:
    """The parts of a row's split, such as `test, 1000 of 5000 images (seed 0), limit 20`."""

    split: str
    choices: str  # prompts=, limit= and protocol=centred, if given
    paper_protocol: bool
    pool: int | None

    def order(self) -> tuple[bool, bool, str, str]:
        """Return the sorting key of the value to use: first the split `test`, then the default choices."""
        return self.split != TEST, bool(self.choices), self.split, self.choices

    def name(self, task: str, dataset: str) -> str:
        """Return the name of the value of a data set, which is given by its canonical name; see `value_name`."""
        return f"{task} {_with_split(dataset, self.split)}" + (f", {self.choices}" if self.choices else "")


@cache
def _parse_split(dataset: str, split: str) -> _SplitParts:
    """Separate the parts of a row's split. Classes in a folder DIR/val are of the split val, though rows say `test`."""
    name, _, rest = split.partition(", ")
    if name == TEST and (of_folder := OTHER_SPLIT.search(dataset.lower())):
        name = of_folder[1]
    pool = re.match(r"(\d+) of \d+ images \(seed \d+\)(, )?", rest)
    rest = rest[pool.end() :] if pool else rest
    paper = re.match(r"paper protocol(, (?=limit |training )|$)", rest)
    choices = rest[paper.end() :] if paper else rest
    return _SplitParts(name, choices, bool(paper), int(pool[1]) if pool else None)


def value_name(row: Result) -> str:
    """Return the name of a row's value: "zeroshot cifar10", "zeroshot cifar10, prompts simple".

    The name contains the split (unless it is `test`) and, if they are not the defaults, prompts, limit and protocol:
    "retrieval flickr8k/dev". So values that cannot be compared have different names. Pool and protocol=paper are left
    out: a reader has one each.
    """
    return _parse_split(row.dataset, row.split).name(row.task, canonical_name(row.dataset))


def value_title(row: Result) -> str:
    """Return the title of a row's value in a report: "retrieval flickr8k/dev", "zeroshot x (prompts simple)"."""
    parts = _parse_split(row.dataset, row.split)
    known = parts.split == TEST or row.dataset.endswith(f"/{parts.split}")
    notes = [text for text in ("" if known else parts.split, parts.choices) if text]
    return f"{row.task} {row.dataset}" + (f" ({', '.join(notes)})" if notes else "")


def dataset_of(name: str) -> str:
    """Return the canonical name of the data set in the name of a value."""
    return re.split("[/,]", name.partition(" ")[2])[0]


@dataclass(frozen=True)
class CombinedReader(Measure):
    """The values of several readers together."""

    readers: tuple[MetricReader, ...]
    by_task: bool = False  # the quantity is the mean of the tasks' means, and not of all data sets

    def read(self, run: Run) -> dict[str, float]:
        """Return the values of all readers; {} if one of them finds none."""
        found = [reader.read(run) for reader in self.readers]
        return {name: value for values in found for name, value in values.items()} if all(found) else {}

    def mean(self, values: dict[str, float]) -> float:
        """Return the mean of the values; with `by_task`, each task counts alike, however many data sets it has."""
        if not self.by_task:
            return super().mean(values)
        by_task: dict[str, list[float]] = {}
        for name, value in values.items():
            by_task.setdefault(name.partition(" ")[0], []).append(value)
        return statistics.fmean(map(statistics.fmean, by_task.values()))


@dataclass(frozen=True)
class FirstReader(Measure):
    """The values of the first of several readers that finds some."""

    readers: tuple[MetricReader, ...]

    def read(self, run: Run) -> dict[str, float]:
        """Return name -> value; {} if no reader finds any."""
        return next(filter(None, (reader.read(run) for reader in self.readers)), {})


@dataclass(frozen=True)
class SpreadOfMean(Measure):
    """Standard deviation of a point-set model's mean zero-shot accuracy between draws of its random features.

    All data sets use the same draws, so each draw has one mean accuracy over the data sets.
    """

    per_class: tuple[str, ...] = ()  # data sets on which the mean per-class accuracy replaces top-1

    def read(self, run: Run) -> dict[str, float]:
        """Return {"spread over DATA SETS": value}; {} without an artifact of the task zeroshot_draws."""
        by_dataset = {
            canonical_name(dataset): artifact
            for dataset, artifact in run.artifacts_of("zeroshot_draws")
            if ", " not in dataset  # with the default prompts, without limit=
        }
        scores = [
            artifact["mean_per_class" if dataset in self.per_class else "top1"]
            for dataset, artifact in by_dataset.items()
        ]
        means = [statistics.fmean(of_draw) for of_draw in zip(*scores, strict=True)]
        return {f"spread over {', '.join(sorted(by_dataset))}": statistics.stdev(means)} if means else {}


@dataclass(frozen=True)
class SlowClosure(Measure):
    """R^2 of a linear fit of the logged gap against 1/log^2 t after step 100 (paper 4, figure 4).

    Negative if the line falls with 1/log^2 t, that is, if the gap grows with time.
    """

    def read(self, run: Run) -> dict[str, float]:
        """Return {"R^2": value}; {} for a diverged run and with fewer than ten logged steps."""
        points = [(1 / math.log(step) ** 2, gap) for step, gap in logged_gaps(run) if step > 100]
        return {"R^2": signed_r_squared(points)} if len(points) >= 10 and not run.diverged else {}


@dataclass(frozen=True)
class FinalGap(Measure):
    """The gap at the end of training: mean of the logged values in the last tenth of the steps.

    A mean, because the gap still moves up and down from step to step, above all with small batches.
    """

    def read(self, run: Run) -> dict[str, float]:
        """Return {"final gap": value}; {} for a diverged run, and if no gap was logged after initialisation."""
        logged = logged_gaps(run)
        last = max((step for step, _ in logged), default=0)
        values = [gap for step, gap in logged if step >= 0.9 * last]
        return {"final gap": statistics.fmean(values)} if last and not run.diverged else {}


@dataclass(frozen=True)
class EarlyChange(Measure):
    """The gap after ten steps minus the gap at initialisation."""

    def read(self, run: Run) -> dict[str, float]:
        """Return {"change": value}; {} if one of the two gaps was not logged."""
        gap = dict(logged_gaps(run))
        return {"change": gap[10] - gap[0]} if {0, 10} <= set(gap) else {}


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
    name = re.sub(r"/(train|val|dev|test)$", "", dataset.lower().rstrip("/")).rpartition("/")[2]
    return re.sub(r"[\W_]+", "", name.removeprefix("wds_").removeprefix("vtab-").removeprefix("vtab_"))


def dataset_key(dataset: str) -> str:
    """Return the canonical name with the split, unless that is `test` or missing: `flickr8k`, `flickr8k/dev`."""
    split = OTHER_SPLIT.search(dataset.lower().rstrip("/"))
    return canonical_name(dataset) + (split[0] if split else "")


def _with_split(dataset: str, split: str) -> str:
    of_name = canonical_name(split) == dataset  # held-out pairs: their split has the name of the set
    return dataset if split == TEST or of_name else f"{dataset}/{split}"


# a data set's name in the papers -> canonical name (measures.canonical_name) of each folder name in use
ALIASES: dict[str, tuple[str, ...]] = {
    "ImageNet": ("imagenet", "imagenet1k"),
    "Aircraft": ("aircraft", "fgvcaircraft"),
    "Flowers": ("flowers", "flowers102"),
    "Pets": ("pets", "oxfordiiitpet"),
    "Cars": ("cars", "stanfordcars"),
    "MSCOCO": ("mscoco", "mscococaptions", "coco"),  # the papers' 5,000 test images, so not coco/val2014
    "CLEVR-Count": ("clevr", "clevrv10", "clevrcount", "clevrcounts", "clevrcountall"),
    "MMVP": ("mmvp", "mmvpvlm"),
}
WITHOUT_ALIAS = "ImageNetV2 Caltech-101 CIFAR-10 CIFAR-100 STL-10 Food-101 EuroSAT DTD SUN397 Flickr30k"
ALIASES |= {name: (name.lower().replace("-", ""),) for name in WITHOUT_ALIAS.split()}


def aliases(*names: str) -> tuple[str, ...]:
    """Return the canonical names of the data sets that the papers call `names`."""
    return tuple(alias for name in names for alias in ALIASES[name])


BOTH_R1 = ("image_to_text_recall@1", "text_to_image_recall@1")
ALL_RECALLS = tuple(f"{direction}_recall@{k}" for direction in ("image_to_text", "text_to_image") for k in (1, 5, 10))
COUNTING = ("scenescount", *aliases("CLEVR-Count"))
PER_CLASS = aliases("Caltech-101", "Aircraft", "Flowers", "Pets")  # paper 5: mean per class; top-1 elsewhere

# A reader without `datasets` averages over all data sets that the compared runs share.
ZEROSHOT = MetricReader("zeroshot", ("top1",))
PROBE = MetricReader("linear_probe", ("top1",))
RECALL_1 = MetricReader("retrieval", BOTH_R1)
RECALL_MEAN = MetricReader("retrieval", ALL_RECALLS)  # paper 1: mean of R@1, R@5, R@10 in both directions
# paper 3's mean: Table 1 has two sets of each task
RECALL_1_AND_ZEROSHOT = CombinedReader((RECALL_1, ZEROSHOT), by_task=True)
# counting as classification; on photographs, as the choice between two numbers in a caption (swaps:FOLDER)
COUNT = FirstReader(
    (MetricReader("zeroshot", ("top1",), datasets=COUNTING), MetricReader("choices", ("accuracy/numbers",)))
)
ALL_BUT_COUNT = CombinedReader((MetricReader("zeroshot", ("top1",), without=COUNTING), RECALL_1))
PER_CLASS_ZEROSHOT = MetricReader("zeroshot", ("top1",), per_class=PER_CLASS)
PER_CLASS_PROBE = MetricReader("linear_probe", ("top1",), per_class=PER_CLASS)
PER_CLASS_BEFORE = MetricReader("linear_probe_before_projection", ("top1_before_projection",), per_class=PER_CLASS)
PAIR_ACCURACY = MetricReader("pairs", ("pair_accuracy",))
GAP = MetricReader("geometry", ("gap",))
UNIFORMITY = MetricReader("geometry", ("uniformity",))
MARGIN = MetricReader("geometry", ("margin_mean",))
MARGINS_ABOVE_0 = MetricReader("geometry", ("margin_positive",))
MARGIN_QUANTILES = tuple(MetricReader("geometry", (f"margin_q{share}",)) for share in ("25", "50", "95"))
# rank correlation of NUCLR's zeta with the optimum of paper 3's eq. (5), and with the popularity of rendered scenes
ZETA_OPTIMUM = MetricReader("popularity", ("zeta_text_sinkhorn_spearman", "zeta_image_sinkhorn_spearman"))
ZETA_POPULARITY = MetricReader("popularity", ("zeta_text_spearman", "zeta_image_spearman"))
