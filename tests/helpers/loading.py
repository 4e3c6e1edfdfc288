"""Load batches of small images in tests; the tokenizer makes a token of each byte."""

import torch
from torch import Tensor

from clipx.config.schema import DataConfig, TrainConfig
from clipx.data.loading.loader import open_loader
from clipx.data.sampler import Sampler
from clipx.data.sources.base import PairSource
from clipx.data.sources.opening import open_source
from clipx.data.sources.streams import Stream
from clipx.types import Batch, Inputs


def inputs(
    size: int = 32, tokenizer: str = "RN50", length: int = 8, interpolation: str = "bicubic", clean: str = "none"
) -> Inputs:
    """Return an input format with mean and standard deviation 0.5; evaluation crops images to their central square."""
    half = (0.5, 0.5, 0.5)
    return Inputs(size, half, half, interpolation, "shortest", tokenizer, length, clean=clean)


def tokenize(texts: list[str]) -> Tensor:
    """Return the last 8 bytes of each text, because captions of the tests differ there."""
    return torch.tensor([list(text.encode()[-8:].rjust(8)) for text in texts])


def load(
    config: DataConfig,
    train: TrainConfig,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    start: int = 0,
    needs: tuple[str, ...] = (),
    source: PairSource | Stream | None = None,
) -> list[tuple[Batch, list[str]]]:
    """Return the batches of this rank from step `start` on, with the errors of their bad samples.

    If `source` is None, open the source that `config` describes.
    """
    source = source or open_source(config)
    sampler = Sampler(len(source), train, seed, rank, world_size, block=config.block)
    loader = open_loader(config, source, sampler, inputs(), tokenize, needs)
    return list(loader.batches(start, torch.device("cpu")))
