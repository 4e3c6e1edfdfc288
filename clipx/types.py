"""The types that flow between data, towers, objective and training (b: local batch, B: global batch)."""

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Batch:
    """What the loader yields; local to one rank."""

    sample_id: Tensor  # int64 [b], stable index in 0..num_samples-1
    image: Tensor  # float [b, 3, H, W], normalised
    text: Tensor  # int64 [b, L] token ids
    label: Tensor  # int64 [b] keyword label, 0 = none


@dataclass
class PointSet:
    """A weighted set of K points a sample; CLIP is K = 1 with weight 1 (paper 5, section 3)."""

    points: Tensor  # [b, K, D]
    weights: Tensor  # [b, K]


@dataclass
class Embeddings:
    """The global batch, after gather. Similarity is always the dot product of image and text."""

    image: Tensor  # [B, E]
    text: Tensor  # [B, E]
    scale: Tensor  # [] inverse temperature 1/tau, already bounded
    sample_id: Tensor  # int64 [B]
    label: Tensor  # int64 [B]
    bias: Tensor | None = None  # [] logit bias (SigLIP)


@dataclass
class Progress:
    """Where a run stands; step and epoch count from 0."""

    step: int
    total_steps: int
    epoch: int
    total_epochs: int


@dataclass
class Loss:
    """What an objective returns."""

    total: Tensor  # [] float32 or float64
    terms: dict[str, Tensor]  # each term before its weight, detached, for the log
    rows: dict[str, Tensor]  # column -> [B] new per-sample values


@dataclass(frozen=True)
class Pixels:
    """What an image tower takes."""

    image_size: int  # H = W, pixels
    mean: tuple[float, float, float]  # of the normalisation, RGB in 0..1
    std: tuple[float, float, float]
    interpolation: str  # of the resize: bicubic | bilinear | nearest
    resize_mode: str  # evaluation: shortest (then centre crop) | longest (then pad) | squash


@dataclass(frozen=True)
class Tokens:
    """What a text tower takes."""

    tokenizer: str  # open_clip's name of the text model that it tokenizes for, or hf:NAME_OR_FOLDER
    context_length: int  # L
    clean: str = "none"  # what is done to a text before it is tokenized (data.clean)


@dataclass(frozen=True)
class Inputs(Tokens, Pixels):
    """What a pair of towers takes; data and evaluation prepare pixels and tokens from it."""
