"""Which sample is where: each epoch is an exact permutation, cut into global batches and those into ranks.

Everything is a function of (seed, epoch, step), so that any number of workers gives the same order and a
run resumes at the exact next sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clipx.config import TrainConfig
from clipx.errors import UserError
from clipx.types import Progress

Index = tuple[int, int]  # epoch, sample id


def permutation(num_samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of an epoch."""
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(num_samples)


def split(num_samples: int, held_out: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids to train on, ascending, and ids held out, in random order; the same for every seed of a run."""
    order = permutation(num_samples, 0, 0) if held_out else np.arange(num_samples)
    first = num_samples - round(held_out * num_samples)
    return np.sort(order[:first]), order[first:]


@dataclass(frozen=True)
class Sampler:
    """Batches of one rank. The last incomplete global batch of an epoch is left out."""

    num_samples: int
    train: TrainConfig
    seed: int
    rank: int
    world: int
    held_out: float = 0.0  # share of the samples that are never trained on

    def __post_init__(self) -> None:
        length = {"train.epochs": self.train.epochs, "train.samples": self.train.samples}
        given = {key: value for key, value in length.items() if value is not None}
        if len(given) != 1:
            raise UserError(
                f"give one of train.epochs and train.samples, the length of the run; given: {given or 'none'}"
            )
        if self.train.batch_size % self.world:
            raise UserError(
                f"train.batch_size={self.train.batch_size} must be a multiple of the {self.world} processes"
            )
        if self.steps_per_epoch == 0:
            raise UserError(
                f"train.batch_size={self.train.batch_size} is larger than the {len(self.train_ids)} samples to train on"
            )
        if self.total_steps < 1 and self.train.samples != 0:  # 0: the untrained model is what is wanted
            key, value = given.popitem()
            raise UserError(f"{key}={value} is less than one step of train.batch_size={self.train.batch_size}")

    @cached_property
    def train_ids(self) -> NDArray[np.int64]:
        """The ids that an epoch goes through."""
        return split(self.num_samples, self.held_out)[0]

    @property
    def steps_per_epoch(self) -> int:
        """Whole global batches in an epoch."""
        return len(self.train_ids) // self.train.batch_size

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

    def batches(self, start: int) -> Iterator[list[Index]]:
        """This rank's ids for steps start, start + 1, ..., total_steps - 1."""
        own = self.train.batch_size // self.world
        epoch, order = -1, permutation(0, self.seed, 0)
        for step in range(start, self.total_steps):
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                order = self.train_ids[permutation(len(self.train_ids), self.seed, epoch)]
            begin = step % self.steps_per_epoch * self.train.batch_size + self.rank * own
            yield [(epoch, int(i)) for i in order[begin : begin + own]]
