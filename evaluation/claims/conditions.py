"""Measured training conditions of a paper's recipes: steps, final loss, tau, false negatives, beside the paper's.

A miniature tests a paper's claim only if it trains under the conditions on which the claim's mechanism depends. The
table shows where they differ from the paper's. A value that a run folder does not contain is left empty.
"""

import math
import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import fmean, median

import evaluation.claims.papers
from clipx.config.schema import RunConfig
from clipx.data.preprocess.captions import Keywords
from clipx.data.sampler import Sampler, num_train
from clipx.data.scenes.captions import fits
from clipx.data.scenes.samples import training_sample
from evaluation.runs.description import last, number, pairs_in_epoch
from evaluation.runs.reader import Run

MAX_BATCHES = 20  # sampled to count labels and false negatives
MAX_PAIRS = 200_000  # pairs of an image and a caption that are compared, over all sampled batches
NOT_GIVEN = "not given"
ROWS = {  # row -> label; n is the number of training samples
    "steps": "steps",
    "epochs": "epochs",
    "batch_share": "batch / n",
    "loss": "final training loss",
    "tau": "tau at the end",
    "labelled": "labelled pairs in a batch",
    "false_negatives": "false negatives in a batch",
}
Values = dict[str, float]  # row -> value; rows that the run folder does not determine are missing


@dataclass(frozen=True)
class Stated:
    """A paper's value of one row."""

    source: str = ""  # place in the paper
    value: float | list[float] | None = None  # number or [low, high]; None: not given

    @property
    def text(self) -> str:
        """The number, `0.01 to 0.07`, or NOT_GIVEN."""
        ends = self.value if isinstance(self.value, list) else [self.value]
        return " to ".join(NOT_GIVEN if end is None else _text(end) for end in ends)


@dataclass(frozen=True)
class PaperConditions:
    """The conditions of one group of a paper's experiments."""

    paper: int
    name: str
    recipes: list[str]
    rows: dict[str, Stated]


@dataclass(frozen=True)
class Conditions:
    """The measured conditions of a recipe, and the paper's."""

    recipe: str
    paper: PaperConditions
    runs: list[Values]  # of the runs with training steps

    def measured(self, row: str) -> list[float]:
        """Return the values of a row, ascending."""
        return sorted(values[row] for values in self.runs if row in values)

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return label, the paper's value, the runs' median and range, and the source, for each row with either value.

        The range is left out if all runs have the same value.
        """
        rows = []
        for row, label in ROWS.items():
            stated, values = self.paper.rows.get(row, Stated()), self.measured(row)
            if not values and stated.value is None:
                continue
            middle, low, high = map(_text, (median(values), values[0], values[-1])) if values else ("", "", "")
            rows.append((label, stated.text, middle if low == high else f"{middle} [{low}, {high}]", stated.source))
        return rows


def read_papers() -> list[PaperConditions]:
    """Return the conditions that the papers state, from evaluation/claims/papers/conditions.toml."""
    file = Path(evaluation.claims.papers.__path__[0]) / "conditions.toml"
    return [
        PaperConditions(
            paper=table["paper"],
            name=table["name"],
            recipes=table["recipes"],
            rows={row: Stated(**table[row]) for row in ROWS if row in table},
        )
        for table in tomllib.loads(file.read_text(encoding="utf-8"))["conditions"]
    ]


def measured_conditions(runs: list[Run]) -> list[Conditions]:
    """Return the conditions of each recipe of a paper, in the order of the runs. Untrained runs are left out.

    Runs with the same data and length are assumed to have the same labels and false negatives, whatever their seeds.
    """
    papers = {recipe: paper for paper in read_papers() for recipe in paper.recipes}
    found: dict[str, Conditions] = {}
    counted: dict[str, Values] = {}  # settings of data and length -> counts
    for run in runs:
        recipe = run.config.recipe
        if recipe in papers and last(run, "loss") is not None:
            found.setdefault(recipe, Conditions(recipe, papers[recipe], [])).runs.append(_measure(run, counted))
    return list(found.values())


def _measure(run: Run, counted: dict[str, Values]) -> Values:
    logged = {"steps": last(run, "step"), "tau": last(run, "tau"), "loss": final_loss(run)}
    values = {row: value for row, value in logged.items() if value is not None}
    data, train = run.config.data, run.config.train
    scenes = data.source == "scenes"
    n = num_train(data.scenes.num_train, data.held_out) if scenes else pairs_in_epoch(run)
    if n:
        values["batch_share"] = train.batch_size / n
        values["epochs"] = values.get("steps", 0) * train.batch_size / n
    if scenes:
        key = repr([data, train.batch_size, train.epochs, train.samples])
        if key not in counted:
            counted[key] = _count(run.config)
        values |= counted[key]
    return values


def final_loss(run: Run) -> float | None:
    """Return the mean of the finite losses in the last tenth of the logged ones; only the term `clip` if it exists."""
    losses = [value for line in run.log if (value := _contrastive(line)) is not None and math.isfinite(value)]
    return fmean(losses[-math.ceil(len(losses) / 10) :]) if losses else None


def _contrastive(line: dict[str, object]) -> float | None:
    terms = line.get("terms")
    found = number(terms, "clip") if isinstance(terms, dict) else None
    return number(line, "loss") if found is None else found


def _count(config: RunConfig) -> Values:
    """Return the mean numbers of labelled pairs and of false negatives in sampled training batches of rendered scenes.

    An image i and a caption j != i of a batch are a false negative if the caption is true of the image.
    """
    label = Keywords(config.data.keywords, config.data.keyword_digits)
    labelled, false_negatives = [], []
    for ids in _batches(config):
        samples = [training_sample(config.data.scenes, i) for i in ids]
        draw = random.Random(0)
        chosen = [draw.randrange(len(s.captions)) if config.data.captions == "random" else 0 for s in samples]
        labelled.append(sum(label(s.captions[k]) > 0 for s, k in zip(samples, chosen, strict=True)))
        described = [(s.scene.content, s.descriptions[k]) for s, k in zip(samples, chosen, strict=True)]
        false_negatives.append(sum(fits(caption, content) for (content, _), (_, caption) in permutations(described, 2)))
    if not false_negatives:
        return {}
    labels = {"labelled": fmean(labelled)} if config.data.keywords else {}
    return labels | {"false_negatives": fmean(false_negatives)}


def _batches(config: RunConfig) -> Iterator[list[int]]:
    """Yield the sample ids of some of the run's global batches, evenly spaced over its steps."""
    data, size = config.data, config.train.batch_size
    sampler = Sampler(data.scenes.num_train, config.train, config.seed, 0, 1, data.held_out, data.block)
    count = min(max(1, MAX_PAIRS // size**2), MAX_BATCHES, sampler.total_steps)
    for k in range(count):
        yield [i for _, i in next(sampler.batches(k * sampler.total_steps // count))]


def _text(value: float) -> str:
    """Format with three significant digits; numbers of 1,000 or more as whole numbers."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.2e}".replace("e-0", "e-") if 0 < abs(value) < 1e-3 else f"{value:.3g}"
