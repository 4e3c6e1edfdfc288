"""Sample ids in, batches out: decoding in worker processes, normalisation on the device."""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import torch
from torch.utils.data import DataLoader, Dataset

from clipx.config.schema import DataConfig
from clipx.data.loading.bad_samples import BadSamples, refuse_above
from clipx.data.loading.collate import Decoded, Loaded, SamplePreprocessor, collate
from clipx.data.loading.watchdog import WorkerActivity, own_group, watched
from clipx.data.preprocess.images import BadSample
from clipx.data.preprocess.tokenizer import Tokenizer
from clipx.data.preprocess.transforms import Normalise
from clipx.data.sampler import SampleKey, Sampler
from clipx.data.sources.base import PairSource
from clipx.data.sources.streams import Stream
from clipx.errors import UserError
from clipx.types import Batch, Inputs

MOST_STAND_INS = 1000  # samples that are tried in the place of a part without a good one


class Samples(Dataset[Decoded]):
    """(epoch, id) -> sample; all randomness is a function of (seed, epoch, id)."""

    def __init__(self, pairs: PairSource, prepare: SamplePreprocessor, seed: int, reading: WorkerActivity) -> None:
        self.pairs = pairs
        self.prepare = prepare
        self.seed = seed
        self.reading = reading

    def __getitem__(self, index: SampleKey) -> Decoded:
        epoch, sample_id = index
        generator = random.Random(f"{self.seed},{epoch},{sample_id}")
        where = self.pairs.where(sample_id)
        self.reading.note(where)
        try:
            image, caption = self.pairs.pair(sample_id, generator)
        except BadSample as error:
            return Decoded(sample_id, damage=f"{where}: {error}")
        finally:
            self.reading.note("")
        return self.prepare(sample_id, where, image, caption, generator)


class ResumedBatchSampler:
    """An iterable that starts the sampler anew each time it is iterated, as DataLoader wants it."""

    def __init__(self, sampler: Sampler, start: int) -> None:
        self.sampler = sampler
        self.start = start

    def __iter__(self) -> Iterator[list[SampleKey]]:
        return self.sampler.batches(self.start)

    def __len__(self) -> int:
        return self.sampler.total_steps - self.start


class Batches(ABC):
    """What the loaders of random access and of streams share: `loaded` to device, damage counted."""

    def __init__(
        self, config: DataConfig, source: PairSource | Stream, sampler: Sampler, inputs: Inputs, tokenizer: Tokenizer
    ) -> None:
        self.sampler = sampler
        self.inputs = inputs
        self.workers = config.workers
        self.prepare = SamplePreprocessor(config, inputs, tokenizer)
        self.stall_seconds = config.stall_seconds
        self.reading = WorkerActivity(config.workers)
        self.bad = BadSamples(config.max_bad_rate, enough=min(1000, len(source)))
        problems = source.problems
        refuse_above(config.max_bad_rate, len(problems), len(source) + len(problems), problems)

    def batches(self, start: int, device: torch.device) -> Iterator[tuple[Batch, list[str]]]:
        """Batches of steps start, start + 1, ..., each with the damage met in it.

        Raises:
            UserError: more bad samples than data.max_bad_rate, or a batch without a good one and no stand-in for it.
            Fault: no batch came for data.stall_seconds.
        """
        loader = self.loaded(start, pin_memory=device.type == "cuda")
        normalise = Normalise(self.inputs, device)
        for loaded in watched(loader, self.stall_seconds, self.reading):
            if not len(loaded.sample_id):
                raise UserError(f"a batch and the next ones have damaged samples only: {'; '.join(loaded.damage[:5])}")
            self.bad.count(len(loaded.sample_id) + len(loaded.damage), loaded.damage)
            batch = Batch(
                sample_id=loaded.sample_id.to(device, non_blocking=True),
                image=normalise(loaded.pixels.to(device, non_blocking=True)),
                text=loaded.text.to(device, non_blocking=True),
                label=loaded.label.to(device, non_blocking=True),
            )
            yield batch, loaded.damage

    @abstractmethod
    def loaded(self, start: int, pin_memory: bool) -> Iterator[Loaded]:
        """The same batches before they go to the device, damage not yet judged."""


class Loader(Batches):
    """Batches of one rank, in the sampler's order whatever the number of workers."""

    def __init__(
        self, config: DataConfig, pairs: PairSource, sampler: Sampler, inputs: Inputs, tokenizer: Tokenizer
    ) -> None:
        super().__init__(config, pairs, sampler, inputs, tokenizer)
        self.samples = Samples(pairs, self.prepare, sampler.seed, self.reading)

    def loaded(self, start: int, pin_memory: bool) -> Iterator[Loaded]:
        loader = DataLoader(
            self.samples,
            batch_sampler=ResumedBatchSampler(self.sampler, start),
            num_workers=self.workers,
            collate_fn=collate,
            pin_memory=pin_memory,
            worker_init_fn=own_group,
            generator=torch.Generator(),  # else each start of an iterator draws from the global state
        )
        for step, loaded in enumerate(loader, start):
            yield loaded if len(loaded.sample_id) else self._replacement_samples(step, loaded)

    def _replacement_samples(self, step: int, loaded: Loaded) -> Loaded:
        """If every sample of this rank's part is damaged, takes good samples from the rank's next parts.

        Skipping the step is no way out: other ranks' parts may be good, and a resume would meet the same part.
        """
        tried = map(self.samples.__getitem__, islice(self.sampler.replacement_samples(step), MOST_STAND_INS))
        good = islice((sample for sample in tried if not sample.damage), len(loaded.damage))
        return replace(collate(list(good)), damage=loaded.damage)  # damage met here has its own step
