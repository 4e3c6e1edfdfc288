"""Which sample is where: each epoch is an exact permutation, cut into global batches and those into ranks.

Everything is a function of (seed, epoch, step), so that any number of workers gives the same order and a
run resumes at the exact next sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clipx.config import TrainConfig
from clipx.errors import UserError
from clipx.types import Progress

Index = tuple[int, int]  # epoch, sample id


def permutation(num_samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of an epoch."""
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(num_samples)


@dataclass(frozen=True)
class Sampler:
    """Batches of one rank. The last incomplete global batch of an epoch is left out."""

    num_samples: int
    train: TrainConfig
    seed: int
    rank: int
    world: int

    def __post_init__(self) -> None:
        if self.train.epochs < 1:
            raise UserError(f"train.epochs={self.train.epochs} must be at least 1")
        if self.train.batch_size < 1 or self.train.batch_size % self.world:
            raise UserError(
                f"train.batch_size={self.train.batch_size} must be a positive multiple of the {self.world} processes"
            )
        if self.steps_per_epoch == 0:
            raise UserError(
                f"train.batch_size={self.train.batch_size} is larger than the data set of {self.num_samples} samples"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Whole global batches in an epoch."""
        return self.num_samples // self.train.batch_size

    @property
    def total_steps(self) -> int:
        """Steps of the run."""
        return self.steps_per_epoch * self.train.epochs

    def progress(self, step: int) -> Progress:
        """Where step stands."""
        return Progress(step, self.total_steps, step // self.steps_per_epoch, self.train.epochs)

    def batches(self, start: int) -> Iterator[list[Index]]:
        """This rank's ids for steps start, start + 1, ..., total_steps - 1."""
        own = self.train.batch_size // self.world
        for epoch in range(start // self.steps_per_epoch, self.train.epochs):
            order = permutation(self.num_samples, self.seed, epoch)
            first = start % self.steps_per_epoch if epoch == start // self.steps_per_epoch else 0
            for step in range(first, self.steps_per_epoch):
                begin = step * self.train.batch_size + self.rank * own
                yield [(epoch, int(i)) for i in order[begin : begin + own]]
