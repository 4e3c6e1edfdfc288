"""Batches of a stream: every worker of every rank draws samples of its own."""

import random
from collections.abc import Iterator, Mapping
from itertools import count, islice

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from clipx.config.schema import DataConfig
from clipx.data.loading.collate import Decoded, Loaded, SamplePreprocessor, collate
from clipx.data.loading.loader import MOST_STAND_INS, Batches, Loader
from clipx.data.loading.watchdog import WorkerActivity, own_group
from clipx.data.preprocess.tokenizer import Tokenizer
from clipx.data.sampler import Sampler
from clipx.data.sources.base import PairSource
from clipx.data.sources.streams import Stream
from clipx.errors import UserError
from clipx.types import Inputs

NOTE = "streaming: shards are drawn with replacement and sample ids only count; a resumed run sees other samples"

NAMED = 100  # samples left out that the log names one by one


class Drawn(IterableDataset[Decoded]):
    """An endless draw that depends on (seed, start, rank, worker); sample ids are places in it."""

    def __init__(
        self, stream: Stream, prepare: SamplePreprocessor, sampler: Sampler, start: int, reading: WorkerActivity
    ) -> None:
        self.stream = stream
        self.prepare = prepare
        self.sampler = sampler
        self.start = start
        self.reading = reading

    def __iter__(self) -> Iterator[Decoded]:
        worker = get_worker_info()
        number = worker.id if worker else 0
        generator = random.Random(f"{self.sampler.seed},{self.start},{self.sampler.rank},{number}")
        for place, found in zip(count(), self.stream.pairs(generator), strict=False):
            self.reading.note(f"on after {found.where}")
            if found.damage:
                yield Decoded(place, damage=f"{found.where}: {found.damage}")
            else:
                yield self.prepare(place, found.where, found.image, found.caption, generator)


class StreamLoader(Batches):
    """Batches of one rank; the order depends on the numbers of ranks and workers, and on where the run resumed."""

    def __init__(
        self, config: DataConfig, stream: Stream, sampler: Sampler, inputs: Inputs, tokenizer: Tokenizer
    ) -> None:
        super().__init__(config, stream, sampler, inputs, tokenizer)
        self.stream = stream
        self.workers = min(config.workers, stream.max_workers)

    def loaded(self, start: int, pin_memory: bool) -> Iterator[Loaded]:
        own = self.sampler.train.batch_size // self.sampler.world
        endless = DataLoader(
            Drawn(self.stream, self.prepare, self.sampler, start, self.reading),
            batch_size=own,
            num_workers=self.workers,
            collate_fn=collate,
            pin_memory=pin_memory,
            worker_init_fn=own_group,
            generator=torch.Generator(),
        )
        steps = islice(_readable(iter(endless)), self.sampler.total_steps - start)
        for step, loaded in enumerate(steps, start):
            first = step * self.sampler.train.batch_size + self.sampler.rank * own
            loaded.sample_id = first + torch.arange(len(loaded.sample_id))
            yield loaded


def _readable(drawn: Iterator[Loaded]) -> Iterator[Loaded]:
    """Drops batches without a good sample, and reports their damage with the next batch."""
    damage: list[str] = []
    for loaded in drawn:
        damage += loaded.damage
        if len(loaded.sample_id) or len(damage) >= MOST_STAND_INS:
            loaded.damage, damage = damage, []
            yield loaded


def open_loader(
    config: DataConfig, source: PairSource | Stream, sampler: Sampler, inputs: Inputs, tokenizer: Tokenizer
) -> Batches:
    """The loader that belongs to a source."""
    if source.streaming:
        return StreamLoader(config, source, sampler, inputs, tokenizer)
    return Loader(config, source, sampler, inputs, tokenizer)


def notes(source: PairSource | Stream, columns: Mapping[str, float]) -> list[str]:
    """What the log says about the source before the first step.

    Raises:
        UserError: the objective keeps per-sample state (`columns`) and the source has no stable ids to keep it by.
    """
    if source.streaming and columns:
        raise UserError(
            f"the objective keeps {', '.join(columns)} for every sample, and a stream has no stable sample ids: "
            "use data.source=shards or another source with random access"
        )
    problems = source.problems
    lines = [NOTE] if source.streaming else []
    lines += [f"left out: {problem}" for problem in problems[:NAMED]]
    if len(problems) > NAMED:
        lines.append(f"left out: {len(problems) - NAMED} more; `clipx data index FOLDER` writes the list")
    return lines
