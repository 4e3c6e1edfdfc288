"""Sample order: each epoch is an exact permutation, split into global batches; each rank gets a part of every batch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clipx.config.schema import TrainConfig
from clipx.errors import UserError
from clipx.types import Progress

SampleKey = tuple[int, int]  # epoch, sample id
CHUNK_BLOCKS = 256  # blocks per chunk, with data.block
CHUNK_SAMPLES = 2**20  # samples per chunk on average, at most, without data.block

Ids = NDArray[np.int32]
Chunks = tuple[NDArray[np.int64], Callable[[int], Ids]]  # start of each chunk in the epoch; chunk -> unshuffled ids


class EpochOrder:
    """An exact permutation of the samples of an epoch, computed chunk by chunk when positions are requested.

    block > 0: a chunk holds CHUNK_BLOCKS random blocks of `block` neighbouring ids, so that only
    CHUNK_BLOCKS contiguous regions are read from disk at a time. block = 0: each sample is in a random chunk.
    """

    def __init__(self, num_samples: int, seed: int, epoch: int, block: int) -> None:
        self.seed = [seed, epoch]
        generator = np.random.Generator(np.random.PCG64(self.seed))
        self.starts, self._unshuffled = (
            _chunks_of_blocks(num_samples, block, generator) if block else _chunks_of_samples(num_samples, generator)
        )
        self._cached: dict[int, Ids] = {}  # shuffled chunks of the last call

    def ids(self, begin: int, end: int) -> Ids:
        """Return the ids at positions begin..end-1 of the epoch."""
        first, last = (np.searchsorted(self.starts, [begin, end - 1], side="right") - 1).tolist()
        chunks = range(first, last + 1)
        self._cached = {k: self._cached[k] if k in self._cached else self._shuffled(k) for k in chunks}
        joined = next(iter(self._cached.values())) if last == first else np.concatenate(list(self._cached.values()))
        return joined[begin - self.starts[first] : end - self.starts[first]]

    def _shuffled(self, chunk: int) -> Ids:
        ids = self._unshuffled(chunk)
        np.random.Generator(np.random.PCG64([*self.seed, 1 + chunk])).shuffle(ids)
        return ids


def _chunks_of_samples(num_samples: int, generator: np.random.Generator) -> Chunks:
    """Assign each sample to a random chunk. Shuffling each chunk then makes all permutations equally likely.

    This is much faster than one shuffle of all ids, because a chunk fits into the CPU cache (Rao 1961, Sandelius 1962).
    """
    count = -(-num_samples // CHUNK_SAMPLES)
    chunk_of = generator.integers(count, size=num_samples, dtype=np.uint16)
    ids = np.argsort(chunk_of, kind="stable").astype(np.int32)  # numpy uses a radix sort for 16 bits
    starts = np.concatenate([[0], np.cumsum(np.bincount(chunk_of, minlength=count))])
    return starts[:-1], lambda chunk: ids[starts[chunk] : starts[chunk + 1]].copy()


def _chunks_of_blocks(num_samples: int, block: int, generator: np.random.Generator) -> Chunks:
    blocks = generator.permutation(-(-num_samples // block))
    lengths = np.minimum(num_samples - blocks * block, block)  # the last block may be shorter
    starts = np.concatenate([[0], np.cumsum(lengths)[CHUNK_BLOCKS - 1 : -1 : CHUNK_BLOCKS]])  # none starts at the end

    def unshuffled(chunk: int) -> Ids:
        begins = (blocks[chunk * CHUNK_BLOCKS : (chunk + 1) * CHUNK_BLOCKS] * block).tolist()
        return np.concatenate([np.arange(b, min(b + block, num_samples), dtype=np.int32) for b in begins])

    return starts, unshuffled


def pairs_of(fingerprint: object) -> int | None:
    """Read the number of pairs from the fingerprint PAIRS:DIGEST of a data set. None: a stream, or no fingerprint."""
    pairs = str(fingerprint).partition(":")[0]
    return int(pairs) if pairs.isdecimal() and len(pairs) < 20 else None


def num_train(num_samples: int, held_out: float) -> int:
    """Return the number of samples to train on; `held_out` is the share of the samples that are held out."""
    return num_samples - round(held_out * num_samples)


def split_held_out(
    num_samples: int, held_out: float, image_of: Ids | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids to train on, ascending, and the held-out ids, in random order.

    The split does not depend on the run's seed. `image_of` [num_samples] is the image number (from 0) of each sample;
    None if no two samples share an image. With `image_of`, no image is in both parts: held-out samples of an image that
    is also trained on are dropped. The first n held-out ids have as many images as possible.
    """
    generator = np.random.Generator(np.random.PCG64(0))
    order = generator.permutation(num_samples)
    first = num_train(num_samples, held_out)
    if image_of is None:
        return np.sort(order[:first]), order[first:]
    place_of_image = generator.permutation(int(image_of.max()) + 1)
    by_image = order[np.argsort(place_of_image[image_of[order]], kind="stable")]
    train, rest = by_image[:first], by_image[first:]
    rest = rest[~np.isin(image_of[rest], image_of[train[-1:]])]  # sorted by image: only the last can be in both
    _, first_of_image, image = np.unique(image_of[rest], return_index=True, return_inverse=True)
    number = np.arange(len(rest)) - first_of_image[image]  # of each caption among those of its image, from 0
    return np.sort(train), rest[np.argsort(number, kind="stable")]


@dataclass(frozen=True)
class Sampler:
    """The batches of one rank. At the end of an epoch, samples that do not fill a global batch are dropped."""

    num_samples: int
    train: TrainConfig
    seed: int
    rank: int
    world_size: int
    held_out: float = 0.0  # share of the samples that are never trained on
    block: int = 0  # number of neighbouring ids that are read together (data.block), see EpochOrder
    image_of: Ids | None = field(default=None, compare=False)  # [num_samples], see split_held_out

    def __post_init__(self) -> None:
        if self.steps_per_epoch == 0:
            allowed = f"the {self.num_train} samples to train on; allowed: at most {self.num_train}"
            raise UserError(f"train.batch_size={self.train.batch_size} is larger than {allowed}")

    @cached_property
    def train_ids(self) -> NDArray[np.int64] | None:
        """Ids to train on; None stands for all ids, because an array of them would waste memory on large data."""
        return split_held_out(self.num_samples, self.held_out, self.image_of)[0] if self.held_out else None

    @property
    def num_train(self) -> int:
        """Samples to train on."""
        return num_train(self.num_samples, self.held_out)

    @property
    def steps_per_epoch(self) -> int:
        """Complete global batches in an epoch."""
        return self.num_train // self.train.batch_size

    @property
    def total_steps(self) -> int:
        """Steps in the run."""
        if self.train.samples is not None:
            return self.train.samples // self.train.batch_size
        assert self.train.epochs is not None
        return self.steps_per_epoch * self.train.epochs

    @property
    def total_epochs(self) -> int:
        """Epochs in the run; the last one may be incomplete."""
        return -(-self.total_steps // self.steps_per_epoch)

    def progress(self, step: int) -> Progress:
        """Return the progress of the run at a step."""
        return Progress(step, self.total_steps, step // self.steps_per_epoch, self.total_epochs)

    def batches(self, start: int) -> Iterator[list[SampleKey]]:
        """Yield this rank's samples of steps start, start + 1, ..., total_steps - 1."""
        for step in range(start, self.total_steps):
            epoch, position = divmod(step, self.steps_per_epoch)
            if position == 0 or step == start:
                order = EpochOrder(self.num_train, self.seed, epoch, self.block)
            yield self._rank_part(order, epoch, position)

    def replacement_samples(self, step: int) -> Iterator[SampleKey]:
        """Yield other samples, for a rank that can read none of those of `step`.

        They are this rank's samples of the next steps; after the epoch's last step come those of its first. No other
        rank uses these samples at this step, neither as regular samples nor as replacements.
        """
        epoch, position = divmod(step, self.steps_per_epoch)
        order = EpochOrder(self.num_train, self.seed, epoch, self.block)
        for offset in range(1, self.steps_per_epoch):
            yield from self._rank_part(order, epoch, (position + offset) % self.steps_per_epoch)

    def _rank_part(self, order: EpochOrder, epoch: int, position: int) -> list[SampleKey]:
        """Return this rank's samples of the epoch's global batch number `position`."""
        local = self.train.batch_size // self.world_size
        begin = position * self.train.batch_size + self.rank * local
        ids = order.ids(begin, begin + local)
        return [(epoch, int(i)) for i in (ids if self.train_ids is None else self.train_ids[ids])]
