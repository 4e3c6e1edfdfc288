"""What an evaluation is made of: data sets in, features once, tasks that score tensors, result rows out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from PIL.Image import Image
from torch import Tensor

Kind = Literal["labelled", "captioned", "pairs"]
View = Literal["images", "prompts", "captions"]


@dataclass(frozen=True)
class FeatureRequest:
    """A set of embeddings that a task needs: all images, prompts or captions of a split, in order."""

    dataset: str  # the data set's full name, e.g. "wds:/data/wds_cifar10"
    split: str
    view: View
    variant: str = ""  # "": the model's embeddings; else one of Encoder.image_variants


@dataclass(frozen=True)
class Settings:
    """How data sets are scored where there is a choice; every row says which was made."""

    prompts: str = "ensemble"  # ensemble | simple | a template with {c}
    protocol: str = "corrected"  # of retrieval: corrected | paper (evaluation/tasks/retrieval.py)
    pools: tuple[int, ...] = ()  # retrieval among so many images as well, beside all of them


DEFAULTS = Settings()


Features = dict[FeatureRequest, Tensor]  # request -> float32 [n, E] on the CPU, rows in the data set's order


@dataclass
class Encoder:
    """A model as the evaluation sees it."""

    name: str  # for tables, e.g. "demo/s0 step 470"
    preprocess: Callable[[Image], Tensor]  # -> float [3, H, W], normalised as in training
    tokenize: Callable[[list[str]], Tensor]  # -> int64 [n, L]
    image: Callable[[Tensor], Tensor]  # [b, 3, H, W] -> [b, E]
    text: Callable[[Tensor], Tensor]  # [b, L] -> [b, E]
    provenance: dict[str, str]  # hashes: checkpoint, transform, tokenizer; and precision
    seed: int  # the run's seed; 0 for published weights
    cosine: bool = True  # embeddings are L2-normalised; else their dot product, as it is, is the similarity
    # what else there is of a sample, by name: "draw 1", ... of random features, "before projection"
    image_variants: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    text_variants: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)


class Dataset(Protocol):
    """An evaluation data set; `kind` says which tasks can score it.

    labelled: classnames, templates and `labels(split)`; views images (per split) and prompts.
    captioned: `image_of_caption(split)`; views images and captions.
    pairs: images 2p and 2p+1 and captions 2p and 2p+1 belong to pair p; `categories(split)` [P].
    """

    name: str
    kind: Kind
    splits: tuple[str, ...]

    def images(self, split: str) -> Sequence[Image]: ...  # decoded on access
    def texts(self, split: str, view: View) -> list[str]: ...
    def fingerprint(self, split: str, view: View) -> str: ...  # changes when the content does


@dataclass
class Result:
    """One number with its provenance; a line of `results.jsonl`."""

    task: str
    dataset: str
    split: str
    metric: str
    value: float  # a fraction, not per cent
    n: int  # examples behind it
    low: float  # 95% interval, bootstrap over examples
    high: float
    chance: float | None  # what random embeddings score; None where it has no closed form
    higher_is_better: bool
    seed: int
    model: str  # Encoder.name
    hashes: dict[str, str] = field(default_factory=dict)  # checkpoint, transform, templates, classnames, ...


@dataclass
class Score:
    """What a task returns: rows, and what the report draws (JSON-able)."""

    results: list[Result]
    artifact: dict[str, Any] | None = None


class Task(Protocol):
    """Scores tensors only; never sees the model."""

    name: str
    kind: Kind  # the data sets it can score
    version: int  # increase when the scoring changes; stored rows are then recomputed
    needs: tuple[str, ...]  # splits that such a data set must have
    variants: tuple[str, ...]  # what a model must have beside its embeddings: of Encoder.image_variants

    def requests(self, dataset: Any) -> list[FeatureRequest]: ...
    # one entry per set of rows that `score` writes: the hashes that only that set carries
    def groups(self, dataset: Any) -> list[dict[str, str]]: ...
    def score(
        self, dataset: Any, features: Features, device: torch.device | str = "cpu", cosine: bool = True
    ) -> Score: ...  # as Encoder.cosine


def printable_line(text: str) -> str:
    """Return user text without line breaks and control characters, which tables, SVG and Markdown cannot hold."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
