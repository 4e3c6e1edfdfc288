"""Shared types: feature requests, settings, encoders, data sets, tasks and result rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from clipx.config.evaluation import EvalConfig
from clipx.errors import printable

if TYPE_CHECKING:  # slow imports that reading runs does not need
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor

    from clipx.models.frozen import FrozenTower

Kind = Literal["labelled", "captioned", "pairs", "choices", "associations"]
View = Literal["images", "prompts", "captions"]
Device: TypeAlias = "torch.device | str"
SPLIT = "test"  # the split that zeroshot and linear_probe score; never used to choose settings
PAPER_NOTE, CENTRED_NOTE = ", paper protocol", ", centred protocol"  # ends of splits' names under these protocols
# task -> its headline metrics -> their names in tables; any other task's headline is the first metric of its rows
HEADLINE = {
    "zeroshot": {"top1": "zero-shot accuracy"},
    "zeroshot_draws": {
        "top1_mean_over_draws": "zero-shot accuracy, mean of five draws",
        "top1_spread_over_draws": "zero-shot accuracy, standard deviation over five draws",
    },
    "linear_probe": {"top1": "linear probe accuracy"},
    "retrieval": {"image_to_text_recall@1": "image → text R@1", "text_to_image_recall@1": "text → image R@1"},
    "pairs": {"pair_accuracy": "pair accuracy"},
    "choices": {"accuracy": "choice of the caption"},
    "associations": {"jaccard": "Jaccard index of associations"},
    "geometry": {"gap": "modality gap", "uniformity": "uniformity", "margin_mean": "mean margin"},
    "popularity": {
        "zeta_text_sinkhorn_spearman": "rank correlation of ζ (texts) with its optimum",
        "zeta_text_spearman": "rank correlation of ζ (texts) with popularity",
    },
}


@dataclass(frozen=True)
class FeatureRequest:
    """A request of a task for the embeddings of all images, prompts or captions of a split, in order."""

    dataset: str  # the data set's full name, e.g. "wds:/data/wds_cifar10"
    split: str
    view: View
    variant: str = ""  # "" for the model's embeddings, else a key of the encoder's image_variants or text_variants


@dataclass(frozen=True)
class Settings:
    """Scoring options. Names of splits and hashes contain them, so that rows scored differently are never mixed."""

    prompts: str = "ensemble"  # ensemble | simple | a template with {c} for the class name
    protocol: str = "corrected"  # corrected | paper (tasks/retrieval.py) | centred (tasks/rows.py)
    pools: tuple[int, ...] = ()  # also score retrieval on image subsets of these sizes
    limit: int | None = None  # score only this many images or minimal pairs of each split
    image_column: str = "image"  # column of the images in csv, tsv and hf data sets
    caption_column: str = "caption"  # in the same data sets

    @classmethod
    def of(cls, config: EvalConfig) -> Settings:
        """Return the scoring options of `clipx eval`."""
        columns = config.image_column, config.caption_column
        return cls(config.prompts, config.protocol, tuple(config.pools), config.limit, *columns)


DEFAULTS = Settings()
Features: TypeAlias = "dict[FeatureRequest, Tensor]"  # request -> float32 [n, E] on the CPU, rows as in the data set


@dataclass
class Encoder:
    """A model to evaluate."""

    name: str  # for tables, e.g. "demo/s0 step 470"
    preprocess: Callable[[Image], Tensor]  # -> float [3, H, W], normalised as in training
    tokenize: Callable[[list[str]], Tensor]  # -> int64 [n, L]
    image: Callable[[Tensor], Tensor]  # [b, 3, H, W] -> [b, E]
    text: Callable[[Tensor], Tensor]  # [b, L] -> [b, E]
    provenance: dict[str, str]  # hashes of checkpoint, transform and tokenizer; precision
    seed: int  # the run's seed; 0 for published weights
    cosine: bool = True  # False: embeddings are not L2-normalised, and the similarity is their dot product
    # name -> function for other embeddings: "draw 1", ... (other random features of a kernel), "before projection"
    image_variants: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    text_variants: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    # side -> frozen tower; the function of this side (`image`, `text`) takes its features instead of pixels or tokens
    frozen_towers: dict[str, FrozenTower[Any]] = field(default_factory=dict)


class Dataset(Protocol):
    """An evaluation data set; `kind` decides which tasks can score it.

    labelled: has `classnames`, `templates` and `labels(split)`; views: images and prompts.
    captioned: has `image_of_caption(split)`; views: images and captions.
    pairs: has `categories(split)`, one per pair; images 2p and 2p+1 and captions 2p and 2p+1 belong to pair p.
    choices: has `categories(split)`, one per image, and `answers`, the number of captions per image; image i has the
        captions from `answers` * i to `answers` * (i + 1) - 1, and the first `right` of them are right.
    associations: has `candidates`, the candidate images of each cue, and `right`, the positions of the right ones among
        these; the cues are the captions.
    """

    name: str
    short: str  # the name in result rows
    kind: Kind
    splits: tuple[str, ...]

    def images(self, split: str) -> Sequence[Image]: ...  # decoded on access
    def texts(self, split: str, view: View) -> list[str]: ...
    def fingerprint(self, split: str, view: View) -> str: ...  # changes with the content


NOT_SHARES = ("geometry", "popularity", "train")  # tasks whose values are distances, correlations or losses


@dataclass
class Result:
    """One number with its provenance; a line of `results.jsonl`."""

    task: str
    dataset: str
    split: str
    metric: str
    value: float  # a share is from 0 to 1, not in per cent
    n: int  # number of examples
    low: float  # 95% interval, in most tasks from a bootstrap over examples
    high: float
    chance: float | None  # expected value for random embeddings; None if it has no closed form
    higher_is_better: bool
    # set by the runner: tasks do not see the model
    seed: int = 0
    model: str = ""  # Encoder.name
    hashes: dict[str, str] = field(default_factory=dict)  # checkpoint, transform, templates, classnames, ...

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Task, data set, split and metric."""
        return self.task, self.dataset, self.split, self.metric

    @property
    def is_share(self) -> bool:
        """True for accuracies, recalls and other shares, shown in per cent; False for distances and correlations."""
        return self.task not in NOT_SHARES and max(self.value, self.chance or 0.0) <= 1  # a rank: chance is above 1


@dataclass
class Items:
    """Right or wrong answer for each item of a metric; `evaluation/runs/items.py` stores these."""

    split: str
    metric: str  # of recall@k only recall@1: the others follow from `rank`
    item: Tensor  # int64 [n], index in the split's images, captions or pairs
    right: Tensor  # bool [n]
    rank: Tensor | None = None  # int64 [n], rank of the right answer, 1 = best
    unit: Tensor | None = None  # int64 [n], image of each caption: the bootstrap draws images, with all their captions
    hashes: dict[str, str] = field(default_factory=dict)  # as in Result


@dataclass
class Score:
    """Output of a task: result rows, a JSON-serialisable artifact for the report's figures, and items."""

    results: list[Result]
    artifact: dict[str, Any] | None = None
    items: list[Items] = field(default_factory=list)


class Task(Protocol):
    """A task scores tensors only; it never sees the model."""

    name: str
    kind: Kind  # kind of data set that the task can score
    version: int  # increase this number when the scoring changes: stored rows are then recomputed
    needs: tuple[str, ...] = ()  # splits that the data set must have
    variants: tuple[str, ...] = ()  # keys that Encoder.image_variants must have
    on_request: bool = False  # True: runs only if tasks= names it

    def requests(self, dataset: Any) -> list[FeatureRequest]:
        """Return the embeddings that `score` needs."""

    def groups(self, dataset: Any) -> list[dict[str, str]]:
        """Return the further hashes of each group of rows, beside those of model, data and task.

        Retrieval has one group for all images and one per pool. Default: one group without further hashes. The runner
        adds the hashes of the first group to all rows and items, so all groups must contain them.
        """
        return [{}]

    def score(self, dataset: Any, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Score the requested features on `device`; see Encoder for `cosine`."""


@runtime_checkable
class VectorsOnly(Protocol):
    """A data set of precomputed embeddings, without images or texts."""

    name: str

    def vectors(self, view: View, numbers: NDArray[np.int64]) -> Tensor:
        """Return float32 [b, width] of some images or texts."""


def spreadsheet_cell(value: object) -> object:
    """Return a CSV cell that no spreadsheet executes: a text that begins like a formula gets a leading quote.

    Control characters become spaces.
    """
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else printable(value)


def csv_text(table: Sequence[Sequence[object]]) -> str:
    """Return the rows of a table as CSV, with `spreadsheet_cell` applied to each cell."""
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([spreadsheet_cell(value) for value in row] for row in table)
    return lines.getvalue()


def first_names(names: Sequence[str], shown: int = 4) -> str:
    """Return "A, B, C, D and 4 more": the first `shown` names and the number of the others."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
