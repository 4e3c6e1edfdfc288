"""Which sample is where: each epoch is an exact permutation, cut into global batches and those into ranks.

Everything is a function of (seed, epoch, step), so that any number of workers gives the same order and a
run resumes at the exact next sample.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clipx.config.schema import TrainConfig
from clipx.errors import UserError
from clipx.types import Progress

SampleKey = tuple[int, int]  # epoch, sample id
MIXED = 256  # blocks
PIECE = 2**20  # samples, about, of a piece of an order of single samples

Ids = NDArray[np.int32]
Pieces = tuple[NDArray[np.int64], Callable[[int], Ids]]  # places at which they start, ids of one before it is mixed


class Order:
    """The order of an epoch: an exact permutation, whose pieces are mixed when they are reached.

    Blocks of `block` neighbouring ids are drawn in random order and the samples of each MIXED blocks are mixed,
    so that MIXED runs of the disk are being read at a time. 0 mixes all samples.
    """

    def __init__(self, num_samples: int, seed: int, epoch: int, block: int) -> None:
        self.seed = [seed, epoch]
        generator = np.random.Generator(np.random.PCG64(self.seed))
        self.starts, self._unmixed = (
            _by_blocks(num_samples, block, generator) if block else _by_samples(num_samples, generator)
        )
        self._made: dict[int, Ids] = {}

    def ids(self, begin: int, end: int) -> Ids:
        """The ids at places begin..end-1 of the epoch."""
        first, last = np.searchsorted(self.starts, [begin, end - 1], side="right").tolist()
        self._made = {k: self._made[k] if k in self._made else self._piece(k) for k in range(first - 1, last)}
        joined = next(iter(self._made.values())) if last == first else np.concatenate(list(self._made.values()))
        offset = self.starts[first - 1]
        return joined[begin - offset : end - offset]

    def _piece(self, number: int) -> Ids:
        ids = self._unmixed(number)
        np.random.Generator(np.random.PCG64([*self.seed, 1 + number])).shuffle(ids)
        return ids


def _by_samples(num_samples: int, generator: np.random.Generator) -> Pieces:
    """Every sample goes to a random piece. With the pieces mixed, all permutations are equally likely.

    Much faster than to shuffle all at once, as a piece fits into the processor's cache (Rao 1961, Sandelius 1962).
    """
    count = -(-num_samples // PIECE)
    drawn = (
        generator.integers(count, size=num_samples, dtype=np.uint16) if count > 1 else np.zeros(num_samples, np.uint16)
    )
    ids = np.argsort(drawn, kind="stable").astype(np.int32)  # of 16 bits: a radix sort
    starts = np.concatenate([[0], np.cumsum(np.bincount(drawn, minlength=count))])
    return starts[:-1], lambda number: ids[starts[number] : starts[number + 1]].copy()


def _by_blocks(num_samples: int, block: int, generator: np.random.Generator) -> Pieces:
    """A piece is MIXED blocks, drawn at random."""
    blocks = generator.permutation(-(-num_samples // block))
    lengths = np.minimum(num_samples - blocks * block, block)  # the last block may be shorter
    starts = np.concatenate([[0], np.cumsum(lengths)[MIXED - 1 : -1 : MIXED]])

    def unmixed(number: int) -> Ids:
        begins = (blocks[number * MIXED : (number + 1) * MIXED] * block).tolist()
        return np.concatenate([np.arange(b, min(b + block, num_samples), dtype=np.int32) for b in begins])

    return starts, unmixed


def num_train(num_samples: int, held_out: float) -> int:
    """Samples that an epoch goes through."""
    return num_samples - round(held_out * num_samples)


def split(
    num_samples: int, held_out: float, image_of: Ids | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids to train on, ascending, and ids held out, in random order; the same for every seed of a run.

    Args:
        image_of: where samples share images, the image of each, numbered from 0. Then no image is in both parts: the
            image at the border is trained on, and its captions beyond `num_train` are in neither. Held-out images
            come with one caption each, then with their second ones, and so on.
    """
    generator = np.random.Generator(np.random.PCG64(0))
    order = generator.permutation(num_samples)
    first = num_train(num_samples, held_out)
    if image_of is None:
        return np.sort(order[:first]), order[first:]
    place = generator.permutation(int(image_of.max()) + 1)  # of each image
    by_image = order[np.argsort(place[image_of[order]], kind="stable")]
    train, rest = by_image[:first], by_image[first:]
    whole = rest[~np.isin(image_of[rest], image_of[train[-1:]])]
    return np.sort(train), whole[np.argsort(_times_before(image_of[whole]), kind="stable")]


def _times_before(values: Ids) -> NDArray[np.int64]:
    """How often each value has come before in a list whose equal values are neighbours."""
    places = np.arange(len(values))
    begins = np.diff(values, prepend=-1) != 0
    return places - np.maximum.accumulate(np.where(begins, places, 0))


@dataclass(frozen=True)
class Sampler:
    """Batches of one rank. The last incomplete global batch of an epoch is left out."""

    num_samples: int
    train: TrainConfig
    seed: int
    rank: int
    world: int
    held_out: float = 0.0  # share of the samples that are never trained on
    block: int = 0  # data.block
    image_of: Ids | None = field(default=None, compare=False)  # of each sample, where samples share images

    def __post_init__(self) -> None:
        length = {"train.epochs": self.train.epochs, "train.samples": self.train.samples}
        given = {key: value for key, value in length.items() if value is not None}
        if len(given) != 1:
            both = f"both are ({', '.join(f'{key}={value}' for key, value in given.items())}): set one to null"
            raise UserError(f"one of train.epochs and train.samples must be set; {both if given else 'none is'}")
        if self.train.batch_size % self.world:
            raise UserError(
                f"train.batch_size={self.train.batch_size} must be divisible by the number of processes, {self.world}"
            )
        if self.steps_per_epoch == 0:
            raise UserError(
                f"train.batch_size={self.train.batch_size} is larger than the {self.num_train} samples to train on"
            )
        if self.total_steps < 1 and self.train.samples != 0:  # 0: the untrained model is what is wanted
            key, value = given.popitem()
            raise UserError(f"{key}={value} is less than one step of train.batch_size={self.train.batch_size}")

    @cached_property
    def train_ids(self) -> NDArray[np.int64] | None:
        """The ids that an epoch goes through; None for all, of which a list would be long."""
        return split(self.num_samples, self.held_out, self.image_of)[0] if self.held_out else None

    @property
    def num_train(self) -> int:
        """Samples that an epoch goes through."""
        return num_train(self.num_samples, self.held_out)

    @property
    def steps_per_epoch(self) -> int:
        """Whole global batches in an epoch."""
        return self.num_train // self.train.batch_size

    @property
    def total_steps(self) -> int:
        """Steps of the run."""
        if self.train.samples is not None:
            return self.train.samples // self.train.batch_size
        assert self.train.epochs is not None
        return self.steps_per_epoch * self.train.epochs

    @property
    def total_epochs(self) -> int:
        """Epochs begun in the run."""
        return -(-self.total_steps // self.steps_per_epoch)

    def progress(self, step: int) -> Progress:
        """Where step stands."""
        return Progress(step, self.total_steps, step // self.steps_per_epoch, self.total_epochs)

    def batches(self, start: int) -> Iterator[list[SampleKey]]:
        """This rank's ids for steps start, start + 1, ..., total_steps - 1."""
        epoch, order = -1, Order(0, 0, 0, 1)
        for step in range(start, self.total_steps):
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                order = self._order(epoch)
            yield self._part(order, epoch, step % self.steps_per_epoch)

    def replacement_samples(self, step: int) -> Iterator[SampleKey]:
        """What a rank reads where its part of a step cannot be read: its parts of the next steps, around the epoch.

        No other rank has one of them, in this step or as a stand-in.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        order = self._order(epoch)
        for further in range(1, self.steps_per_epoch):
            yield from self._part(order, epoch, (place + further) % self.steps_per_epoch)

    def _order(self, epoch: int) -> Order:
        return Order(self.num_train, self.seed, epoch, self.block)

    def _part(self, order: Order, epoch: int, place: int) -> list[SampleKey]:
        """This rank's ids for a step of the epoch."""
        own = self.train.batch_size // self.world
        begin = place * self.train.batch_size + self.rank * own
        ids = order.ids(begin, begin + own)
        return [(epoch, int(i)) for i in (ids if self.train_ids is None else self.train_ids[ids])]
