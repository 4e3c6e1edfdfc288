"""Training regimes: steps, final loss, temperature, labels, false negatives of each recipe, and the paper's values.

A miniature tests a paper's claim only if it trains in the regime on which the claim's mechanism depends. The table
shows where the miniature's regime differs from the paper's. A value that a run folder does not contain is left empty.
"""

import math
import random
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import fmean, median

import torch

import evaluation.claims.papers
from clipx.config.schema import RunConfig
from clipx.data.preprocess.captions import Keywords
from clipx.data.sampler import Sampler, num_train
from clipx.data.scenes.captions import fits
from clipx.data.scenes.samples import concept_frequencies, training_sample
from clipx.errors import UserError
from clipx.models.towers.build import build_towers
from clipx.run.folder import RunFolder
from evaluation.runs.description import last, number, pairs_in_epoch
from evaluation.runs.reader import Run

FAR = 3.0  # a factor above this, or below 1 / FAR, is marked
MAX_BATCHES = 20  # sampled to count labels and false negatives
MAX_PAIRS = 200_000  # pairs of an image and a caption that are compared, over all sampled batches
Values = dict[str, float | None]  # row -> value
Known = dict[tuple[str, str], Values]  # (function, its settings) -> the function's values
ROWS = {  # row -> label; n is the number of training samples
    "steps": "steps",
    "epochs": "epochs",
    "batch_share": "batch / n",
    "loss": "final training loss",
    "tau": "tau at the end",
    "labelled": "labelled pairs in a batch",
    "false_negatives": "false negatives in a batch",
    "false_negatives_each": "false negatives per caption",
    "spread": "popularity, most frequent / rarest",
    "image_tokens": "image tokens",
    "text_tokens": "text tokens",
    "embed_dim": "embedding size",
}


@dataclass(frozen=True)
class Given:
    """A paper's value of one row."""

    source: str = ""  # place in the paper
    value: float | list[float] | None = None  # number or [low, high]; None: not given


@dataclass(frozen=True)
class PaperRegime:
    """The regime of one group of a paper's experiments."""

    paper: int
    name: str
    recipes: list[str]
    rows: dict[str, Given]


@dataclass(frozen=True)
class Measured:
    """Median and range of one row over the runs of a recipe."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Regime:
    """The measured regime of a recipe, and the paper's."""

    recipe: str
    runs: int  # number of runs with training steps
    measured: dict[str, Measured]  # rows without a value are left out
    paper: PaperRegime | None  # None for a recipe that belongs to no paper

    def given(self, row: str) -> Given:
        """Return the paper's value of a row, without a number if the paper gives none."""
        return self.paper.rows.get(row, Given()) if self.paper else Given()

    def factor(self, row: str) -> float | None:
        """Return our median / the paper's value; None if a value is missing or our median is not positive.

        If the paper gives a range, its nearer end is used, and the factor is 1 inside the range.
        """
        given, ours = self.given(row).value, self.measured.get(row)
        if given is None or ours is None or ours.median <= 0:
            return None
        low, high = given if isinstance(given, list) else (given, given)
        return ours.median / min(max(ours.median, low), high)


def is_far(factor: float) -> bool:
    """Return True if the factor is above FAR or below 1 / FAR."""
    return max(factor, 1 / factor) > FAR


def read_papers() -> list[PaperRegime]:
    """Return the regimes that the papers state, from evaluation/claims/papers/regimes.toml."""
    file = Path(evaluation.claims.papers.__path__[0]) / "regimes.toml"
    tables = tomllib.loads(file.read_text(encoding="utf-8"))["regime"]
    return [
        PaperRegime(
            paper=table["paper"],
            name=table["name"],
            recipes=table["recipes"],
            rows={row: Given(**table[row]) for row in ROWS if row in table},
        )
        for table in tables
    ]


def regimes(runs: list[Run]) -> list[Regime]:
    """Return the regime of each recipe, in the order of the runs. Runs without training steps do not count."""
    papers = {recipe: paper for paper in read_papers() for recipe in paper.recipes}
    by_recipe: dict[str, list[Values]] = {}
    known: Known = {}
    for run in runs:
        if last(run, "loss") is not None:
            by_recipe.setdefault(run.config.recipe or run.name, []).append(measure(run, known))
    return [Regime(recipe, len(values), _summarise(values), papers.get(recipe)) for recipe, values in by_recipe.items()]


def measure(run: Run, known: Known) -> Values:
    """Return the values of a run; None for a row whose value the run folder does not contain.

    `known` caches sizes and batch statistics for later runs with the same settings; it ignores their seeds.
    """
    values: Values = {**dict.fromkeys(ROWS), "steps": last(run, "step"), "tau": last(run, "tau")}
    values["loss"] = _final_loss(run)
    try:
        config = RunFolder(run.path).load_config()
    except UserError:  # settings of another version
        return values
    n, batch = _num_train(run, config), config.train.batch_size
    if n:
        values["batch_share"] = batch / n
        values["epochs"] = (values["steps"] or 0) * batch / n
    cached: list[tuple[Callable[[RunConfig], Values], object]] = [(_tower_sizes, config.model)]
    if config.data.source == "scenes":
        train = config.train
        cached.append((_scene_values, [config.data, train.batch_size, train.epochs, train.samples]))
    for function, settings in cached:
        key = function.__name__, repr(settings)
        if key not in known:
            known[key] = function(config)
        values |= known[key]
    return values


def _summarise(runs: list[Values]) -> dict[str, Measured]:
    found = {row: [value for values in runs if (value := values[row]) is not None] for row in ROWS}
    return {row: Measured(median(values), min(values), max(values)) for row, values in found.items() if values}


def _final_loss(run: Run) -> float | None:
    """Return the mean loss over the last tenth of the logged steps; only the term `clip` if the objective has it."""
    losses = [value for line in run.log if (value := _contrastive(line)) is not None]
    return fmean(losses[-math.ceil(len(losses) / 10) :]) if losses else None


def _contrastive(line: dict[str, object]) -> float | None:
    terms = line.get("terms")
    found = number(terms, "clip") if isinstance(terms, dict) else None
    return number(line, "loss") if found is None else found


def _num_train(run: Run, config: RunConfig) -> int | None:
    """Return the number of samples in an epoch, from the config or the environment; None if neither contains it."""
    if config.data.source == "scenes":
        return num_train(config.data.scenes.num_train, config.data.held_out)
    return pairs_in_epoch(run)


def _tower_sizes(config: RunConfig) -> Values:
    """Return the numbers of tokens and the embedding size; image tokens are known only for open_clip's own ViTs."""
    try:
        with torch.device("meta"):  # allocates nothing, however large the towers
            image, text = build_towers(config.model, load=False)
    except UserError:  # e.g. a folder of a model that is not on this machine
        return {}
    positions = getattr(image.module, "positional_embedding", None)
    tokens = None if positions is None else len(positions)  # patches and class token
    return {"image_tokens": tokens, "text_tokens": text.inputs.context_length, "embed_dim": image.embed_dim}


def _scene_values(config: RunConfig) -> Values:
    """Return the mean numbers of labelled pairs and false negatives in sampled training batches, and the spread.

    The spread is the popularity of the most frequent concept, divided by that of the rarest.

    A false negative is an image i and a caption j != i of the same batch if the caption is true of the image.
    """
    frequencies = [f for f in concept_frequencies(config.data.scenes).values() if f]
    values: Values = {"spread": max(frequencies) / min(frequencies)}
    label = Keywords(config.data.keywords, config.data.keyword_digits)
    labelled, false_negatives = [], []
    for ids in _batches(config):
        samples = [training_sample(config.data.scenes, i) for i in ids]
        draw = random.Random(0)
        chosen = [draw.randrange(len(s.captions)) if config.data.captions == "random" else 0 for s in samples]
        labelled.append(sum(label(s.captions[k]) > 0 for s, k in zip(samples, chosen, strict=True)))
        contents = [s.scene.content for s in samples]
        descriptions = [s.descriptions[k] for s, k in zip(samples, chosen, strict=True)]
        others = permutations(range(len(ids)), 2)  # i, j with i != j
        false_negatives.append(sum(fits(descriptions[j], contents[i]) for i, j in others))
    if false_negatives:
        values["false_negatives"] = fmean(false_negatives)
        values["false_negatives_each"] = fmean(false_negatives) / config.train.batch_size
        values["labelled"] = fmean(labelled) if config.data.keywords else None
    return values


def _batches(config: RunConfig) -> Iterator[list[int]]:
    """Yield the sample ids of some of the run's global batches, evenly spaced over its steps."""
    data, size = config.data, config.train.batch_size
    sampler = Sampler(data.scenes.num_train, config.train, config.seed, 0, 1, data.held_out, data.block)
    count = min(max(1, MAX_PAIRS // size**2), MAX_BATCHES, sampler.total_steps)
    for k in range(count):
        yield [i for _, i in next(sampler.batches(k * sampler.total_steps // count))]
