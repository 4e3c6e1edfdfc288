"""Types passed between data, towers, objective and training.

b: pairs of one rank, B: pairs of all ranks, E: embedding width, L: tokens of a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes a second, and `clipx ls runs`, for example, does not need it
    from torch import Tensor


@dataclass
class Batch:
    """The batch of one rank, as the loader yields it: ids, labels and groups in CPU memory, the rest on the device."""

    sample_id: Tensor  # int64 [b], index in 0..num_samples-1; of a stream: running number of the sample
    image: Tensor  # float [b, 3, H, W], normalised; or the features of a frozen tower
    text: Tensor  # int64 [b, L] token ids; or the features of a frozen tower
    label: Tensor  # int64 [b] keyword label, 0 = none
    group: Tensor | None = None  # int64 [b], samples of one group are positives of each other; None: not needed
    negative_text: Tensor | None = None  # int64 [b, L], a false caption for each image; None: not needed


@dataclass
class PointSet:
    """A weighted set of K points per sample; CLIP is K = 1 with weight 1 (paper 5, section 5.2)."""

    points: Tensor  # [b, K, D], D: width of a point
    weights: Tensor  # [b, K]


class Part:
    """The rows of the global batch that this process computes, and how the results of all processes combine.

    This class is for a single process, whose part has all rows. `clipx.distributed.part` returns the part of one of
    several processes; all of them must call the same methods in the same order.
    """

    rows: slice = slice(None)

    def sum(self, values: Tensor) -> Tensor:
        """Sum a tensor over the processes. Backward passes the gradient on: every process computes the same loss."""
        return values

    def logsumexp(self, values: Tensor) -> Tensor:
        """Return the elementwise log sum exp over the processes, without gradient; -inf adds nothing."""
        return values

    def reduce_scatter_(self, values: Tensor, *totals: Tensor) -> tuple[Tensor, ...]:
        """Sum [B, ...] over the processes in place. Afterwards only this process's rows are defined.

        Returns the sums of `totals` (any shape, dtype of `values`), complete on every process.
        """
        return totals

    def select(self, mask: Tensor) -> Part:
        """Return this process's part of `x[mask]`, for tensors x [B, ...] and mask bool [B]."""
        return self


ALL_ROWS = Part()


@dataclass
class TeacherEmbeddings:
    """Embeddings of the global batch by a frozen model, whose width may differ from E."""

    image: Tensor  # [B, E of the teacher]
    text: Tensor  # [B, E of the teacher]
    scale: Tensor  # [] the teacher's own 1/tau


@dataclass
class Embeddings:
    """Embeddings of the global batch, after gather. Similarity is always the dot product of image and text."""

    image: Tensor  # [B, E]
    text: Tensor  # [B, E]
    scale: Tensor  # [] inverse temperature 1/tau, within its bounds
    sample_id: Tensor | None = None  # int64 [B]
    label: Tensor | None = None  # int64 [B] keyword label, 0 = none
    bias: Tensor | None = None  # [] logit bias (SigLIP)
    part: Part = ALL_ROWS  # the rows that this process computes; a term may ignore it and compute the whole loss
    group: Tensor | None = None  # int64 [B], samples of one group are positives of each other
    teacher: TeacherEmbeddings | None = None  # of a frozen model; no gradient
    negative_text: Tensor | None = None  # [B, E], of a false caption for each image


@dataclass
class Progress:
    """Position of a step in the run; step and epoch count from 0."""

    step: int
    total_steps: int
    epoch: int
    total_epochs: int


@dataclass
class Loss:
    """The result of an objective."""

    total: Tensor  # [] float32 or float64
    terms: dict[str, Tensor]  # each term without its weight, detached, for the log
    rows: dict[str, Tensor]  # sample-table column -> new per-sample values [B]


@dataclass(frozen=True)
class Pixels:
    """Input format of an image tower."""

    image_size: int  # H = W, pixels
    mean: tuple[float, float, float]  # for normalisation, RGB in 0..1
    std: tuple[float, float, float]  # for normalisation
    interpolation: str  # resize: bicubic | bilinear | nearest
    resize_mode: str  # in evaluation: shortest (then centre crop) | longest (then pad) | squash


@dataclass(frozen=True)
class Tokens:
    """Input format of a text tower."""

    tokenizer: str  # open_clip model whose tokenizer is used, hf:NAME_OR_FOLDER, or words:scenes
    context_length: int  # L
    clean: str = "none"  # text cleaning before the tokenizer (data.clean)


@dataclass(frozen=True)
class Inputs(Tokens, Pixels):
    """Input format of both towers; training and evaluation preprocess images and texts accordingly."""


def text_lengths(tokens: Tensor, padding: int) -> Tensor:
    """Return the number of tokens of each text before the padding at its end, int64 [b], from token ids [b, L]."""
    from_the_end = tokens.ne(padding).flip(1).cumsum(dim=1)  # tokens other than padding, counted from the end
    return from_the_end.gt(0).sum(dim=1)
