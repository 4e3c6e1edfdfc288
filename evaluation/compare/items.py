"""Two models item by item: paired differences, and the items that only one of them has right, with their pictures."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from clipx.errors import UserError
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import runs_below
from clipx.utils.trust import load_json
from evaluation.datasets.kinds import AnyDataset, Captioned, Choices, Labelled, MinimalPairs
from evaluation.datasets.opening import open_sets
from evaluation.metrics import bootstrap_interval, percentile_interval, weighted_mean
from evaluation.runs import items, reader
from evaluation.runs.groups import MIN_SEEDS
from evaluation.runs.results import INTERMEDIATE, LIMIT
from evaluation.statistics import binomial_interval, mcnemar
from evaluation.types import Settings, first_names

KEY = ("task", "dataset", "split", "metric", "questions")  # two models answered the same items if these are equal
RESAMPLES = 2000
BLOCK = 100  # resamples held at once: of the 108,754 images of SUN397, all of them would take 7 GB
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Scores of one model on each item of a data set, for one metric; sorted by `item`."""

    task: str
    dataset: str
    split: str
    metric: str
    model: str
    hashes: dict[str, str]
    source: str  # specification of the data set
    item: Ints  # index in the split's images, captions or pairs
    unit: Ints  # image of a caption, else the item: items of one unit are not independent
    right: Bools
    rank: list[int | None]  # of the right answer, 1 = best; None if the metric has no ranks

    @property
    def title(self) -> str:
        """Task, data set and the choices in the split's name: `zeroshot cifar10, prompts simple`."""
        return f"{self.task} {self.dataset}" + "".join(self.split.partition(", ")[1:])


@dataclass(frozen=True)
class Pair:
    """The answers of two models to the same items of one metric."""

    a: Answers
    b: Answers

    def only(self, first: bool) -> Ints:
        """Return the positions of the items that only one model has right: `a` if `first`, else `b`."""
        right, wrong = (self.a.right, self.b.right) if first else (self.b.right, self.a.right)
        return np.flatnonzero(right & ~wrong)

    def count(self, a: bool, b: bool) -> int:
        """Return the number of items that model a has right if `a`, else wrong, and b has right if `b`, else wrong."""
        return int(((self.a.right == a) & (self.b.right == b)).sum())

    @property
    def units(self) -> int:
        """Number of independent units, such as images with several captions."""
        return len(np.unique(self.a.unit))

    @cached_property
    def difference(self) -> tuple[float, float, float]:
        """a - b as a fraction of the items, and its 95% interval: paired bootstrap over the units.

        If all units have the same difference, usually 0, a bootstrap interval would have zero width. So the interval
        is then the difference +- the largest share of units that can have another difference (exact binomial).
        """
        summed, sizes = self._by_unit()
        values = summed / sizes
        value = weighted_mean(values, sizes)
        if bool((values == values[0]).all()):
            bound = binomial_interval(0, self.units)[1]
            return value, max(-1.0, value - bound), min(1.0, value + bound)
        return value, *bootstrap_interval(values, sizes)

    @cached_property
    def p_value(self) -> float:
        """The p-value of McNemar's test; see evaluation/statistics.py."""
        return mcnemar(self._by_unit()[0].int().tolist())

    def _by_unit(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return per unit the sum of the items' differences a - b and the number of items, float64."""
        _, index = np.unique(self.a.unit, return_inverse=True)
        differences = self.a.right.astype(float) - self.b.right
        return torch.from_numpy(np.bincount(index, differences)), torch.from_numpy(np.bincount(index).astype(float))


def pair_up(a: Path, b: Path, limited: bool = False) -> list[Pair]:
    """Return a Pair for each metric that both models have on the same items, in the order of `a`.

    `a` and `b` are run directories, whose last evaluations count, or checkpoint folders in them. `limited`: include the
    items of `clipx eval limit=N`.

    Raises UserError: a run is missing or has no items, or the two have no items in common.
    """
    first, second = (read_answers(path, limited) for path in (a, b))
    common = [Pair(answers, second[key]) for key, answers in first.items() if key in second]
    if any(not np.array_equal(pair.a.item, pair.b.item) for pair in common):
        raise UserError(
            f"{a} and {b} have results on different items of one data set: evaluate both again with force=true"
        )
    if not common:
        has = "; ".join(f"{path}: {_names(answers)}" for path, answers in ((a, first), (b, second)))
        raise UserError(f"no common items ({has}): evaluate both with the same datasets, prompts, protocol and limit")
    return common


def _names(answers: dict[tuple[str, ...], Answers]) -> str:
    return first_names([*dict.fromkeys(f"{one.task} on {one.dataset} ({one.split})" for one in answers.values())])


def read_answers(path: Path, limited: bool = False) -> dict[tuple[str, ...], Answers]:
    """Return KEY -> answers of a run directory or checkpoint folder; the last evaluation of a metric counts.

    Raises UserError: `path` holds no run, several runs, or no items.
    """
    digest = ""
    if (path / checkpoints.MANIFEST).is_file():
        path = checkpoints.resolve(path)  # the run lies above it, even if one types its name inside of the run
        digest = str(checkpoints.read_manifest(path)["sha256"][checkpoints.WEIGHTS])[:16]
    run = checkpoints.run_of(path) if digest else _only_run(path)
    # a run that is not fully trained has the items of its last checkpoint only
    saved = [] if digest or (run / items.FILE).exists() else checkpoints.checkpoints(run)
    of_checkpoint = run / INTERMEDIATE / (saved[-1].name if saved else path.name)
    run = of_checkpoint if of_checkpoint.is_dir() else run
    found: dict[tuple[str, ...], Answers] = {}
    has_limited = False
    for key, table in _groups(items.read(run)):
        one = _answers(table, run / items.FILE)
        if digest not in ("", one.hashes.get("checkpoint")):
            continue
        if LIMIT in one.hashes and not limited:
            has_limited = True
            continue
        found.pop(key, None)
        found[key] = one
    if not found and has_limited:
        raise UserError(f"{path} has only items of clipx eval limit=N: add limited=true to compare them")
    if not found:
        raise UserError(f"{path} has no items in {run / items.FILE}: run clipx eval {path} force=true")
    return found


def _only_run(path: Path) -> Path:
    runs = runs_below([path])
    if not runs:
        raise UserError(f"no run at or below {path}; {reader.HINT}")
    if len(runs) > 1:
        shown = first_names([*map(str, runs)])
        raise UserError(f"{path} holds {len(runs)} runs, but diff needs one on each side: give one of {shown}")
    return runs[0]


def _groups(table: pa.Table) -> list[tuple[tuple[str, ...], pa.Table]]:
    """Return (values of KEY, rows) for each combination of KEY and hashes, in the order of the rows."""
    by = [*KEY, "hashes"]
    words = pa.table({name: table[name].cast(pa.string()) for name in by})
    rows = words.group_by(by, use_threads=False).aggregate([]).to_pylist()
    return [(tuple(row[name] for name in KEY), table.filter(items.mask(words, row))) for row in rows]


def _answers(table: pa.Table, file: Path) -> Answers:
    table = table.sort_by("item")
    if len(table) != len(set(table["item"].to_pylist())):
        raise UserError(f"{file} is corrupt (items stored twice): delete it and evaluate again")
    word = {name: table[name][0].as_py() for name in ("task", "dataset", "split", "metric", "model", "source")}
    item, unit = (table[name].to_numpy().astype(np.int64) for name in ("item", "unit"))
    right: Bools = table["right"].to_numpy()
    hashes = load_json(table["hashes"][0].as_py())
    return Answers(**word, hashes=hashes, item=item, unit=unit, right=right, rank=table["rank"].to_pylist())


def over_seeds_and_items(
    a: dict[int, Path], b: dict[int, Path], task: str, metrics: tuple[str, ...], sets: set[tuple[str, str]]
) -> tuple[float, float] | None:
    """Return the 95% interval of the mean difference a - b over seeds and test items together.

    A crossed bootstrap (Owen 2007): a resample draws seeds, and units (images, with all their captions) of every set.
    The sets count alike. The interval over seeds alone says nothing about other test images.

    Args:
        a: seed -> run directory of one method.
        b: the same of the other; seeds that both have count.
        task: whose items are compared.
        metrics: of the task; their mean over a unit is its score.
        sets: data set and split of the items.

    None: fewer than three common seeds, or the last evaluation of a run lacks the items of a set.
    """
    seeds = sorted(a.keys() & b.keys())
    if len(seeds) < MIN_SEEDS:
        return None
    try:
        of_seeds = [(_scores(a[seed], task, metrics), _scores(b[seed], task, metrics)) for seed in seeds]
    except UserError:
        return None
    shared = set.intersection(*(set(one.keys() & other.keys()) for one, other in of_seeds))
    scored = sorted(key for key in shared if key[:2] in sets)
    if not sets or {key[:2] for key in scored} != sets:
        return None
    return crossed_interval([np.stack([one[key] - other[key] for one, other in of_seeds]) for key in scored])


def crossed_interval(by_set: list[NDArray[np.float64]]) -> tuple[float, float]:
    """Return the 95% interval of the mean over sets of [seeds, units], from a bootstrap over seeds and over units."""
    draw = np.random.default_rng(0)
    count = by_set[0].shape[0]
    of_seeds = draw.multinomial(count, np.full(count, 1 / count), RESAMPLES) / count
    total = np.zeros(RESAMPLES)
    for differences in by_set:
        units = differences.shape[1]
        of_units = (draw.multinomial(units, np.full(units, 1 / units), BLOCK) for _ in range(RESAMPLES // BLOCK))
        of_each_seed = np.concatenate([drawn @ differences.T / units for drawn in of_units])  # [RESAMPLES, seeds]
        total += (of_seeds * of_each_seed).sum(axis=1) / len(by_set)
    return percentile_interval(torch.from_numpy(total))


def _scores(run: Path, task: str, metrics: tuple[str, ...]) -> dict[tuple[str, str, str], NDArray[np.float64]]:
    """Return (data set, split, questions) -> score of each unit: the mean over `metrics` of its items, float64 [units].

    An image without captions is no unit.
    """
    found: dict[tuple[str, str, str], list[NDArray[np.float64]]] = {}
    for (of_task, dataset, split, metric, questions), answers in read_answers(run).items():
        if of_task == task and metric in metrics:
            _, unit = np.unique(answers.unit, return_inverse=True)
            right = np.bincount(unit, answers.right) / np.bincount(unit)
            found.setdefault((dataset, split, questions), []).append(right)
    return {key: np.mean(scores, axis=0) for key, scores in found.items() if len(scores) == len(metrics)}


@dataclass(frozen=True)
class Shown:
    """An item: its images as data URIs (two for a minimal pair), and its class name or captions."""

    images: tuple[str, ...]
    text: str


def show(answers: Answers, positions: list[int]) -> tuple[list[Shown], str]:
    """Return the items at these positions of `answers`, and the reason why they are empty, "" if they are not."""
    try:
        return _read(answers, positions), ""
    except UserError as error:
        return [Shown((), "")] * len(positions), f"no pictures: {error}"


def _read(answers: Answers, positions: list[int]) -> list[Shown]:
    limit = answers.hashes.get(LIMIT)
    (dataset,) = open_sets([answers.source], Settings(limit=int(limit) if limit else None))
    split = answers.split.partition(", ")[0]
    if split not in dataset.splits:
        raise UserError(f"{answers.source} no longer has the split {split}")
    if dataset.fingerprint(split, "images") != answers.hashes.get(f"images/{split}"):
        raise UserError(f"the images in {answers.source} have changed since the evaluation")
    return [_shown(dataset, split, int(answers.item[at]), int(answers.unit[at]), answers.metric) for at in positions]


def _shown(dataset: AnyDataset, split: str, item: int, image: int, metric: str) -> Shown:
    if isinstance(dataset, Labelled):
        texts, images = [dataset.classnames[int(dataset.labels(split)[item])]], [image]
    elif isinstance(dataset, Captioned):
        own = (dataset.image_of_caption(split) == image).nonzero()[:, 0].tolist()
        captions = dataset.texts(split, "captions")
        texts, images = [captions[i] for i in (own if "image_to_text" in metric else [item])], [image]
    elif isinstance(dataset, MinimalPairs):
        texts, images = dataset.texts(split, "captions")[2 * item : 2 * item + 2], [2 * item, 2 * item + 1]
    else:
        assert isinstance(dataset, Choices), f"{dataset.name} has no items"
        texts, images = [dataset.texts(split, "captions")[dataset.answers * item]], [item]
    pictures = dataset.images(split)
    return Shown(tuple(items.thumbnail(pictures[i]) for i in images), " / ".join(texts))
