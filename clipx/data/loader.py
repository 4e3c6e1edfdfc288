"""Sample ids in, batches out: decoding in worker processes, normalisation on the device."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from clipx.config import DataConfig
from clipx.data.images import BadSample
from clipx.data.keywords import Keywords
from clipx.data.sampler import Index, Sampler
from clipx.data.sources import Pairs
from clipx.data.tokenizer import Tokenizer
from clipx.data.transforms import TrainTransform, normalise
from clipx.errors import UserError
from clipx.types import Batch, Inputs


@dataclass
class Decoded:
    """A sample, or the reason why there is none."""

    sample_id: int
    pixels: Tensor | None = None  # uint8 [3, H, W]
    text: Tensor | None = None  # int64 [L]
    label: int = 0
    damage: str = ""


@dataclass
class Loaded:
    """A batch on its way from a worker to the device."""

    sample_id: Tensor
    pixels: Tensor
    text: Tensor
    label: Tensor
    damage: list[str]


class Samples(Dataset[Decoded]):
    """(epoch, id) -> sample; all randomness is a function of (seed, epoch, id)."""

    def __init__(
        self, pairs: Pairs, transform: TrainTransform, tokenizer: Tokenizer, keywords: Keywords, seed: int
    ) -> None:
        self.pairs = pairs
        self.transform = transform
        self.tokenizer = tokenizer
        self.keywords = keywords
        self.seed = seed

    def __getitem__(self, index: Index) -> Decoded:
        epoch, sample_id = index
        generator = random.Random(f"{self.seed},{epoch},{sample_id}")
        try:
            image, caption = self.pairs.pair(sample_id, generator)
        except BadSample as error:
            return Decoded(sample_id, damage=f"{self.pairs.where(sample_id)}: {error}")
        pixels = self.transform(image, generator)
        return Decoded(sample_id, pixels, self.tokenizer([caption])[0], self.keywords(caption))


def collate(samples: list[Decoded]) -> Loaded:
    """Stacks the good samples; a batch may be smaller than asked for by the bad ones."""
    good = [s for s in samples if not s.damage]
    empty = torch.empty(0, dtype=torch.uint8)
    return Loaded(
        sample_id=torch.tensor([s.sample_id for s in good], dtype=torch.int64),
        pixels=torch.stack([s.pixels for s in good if s.pixels is not None]) if good else empty,
        text=torch.stack([s.text for s in good if s.text is not None]) if good else empty,
        label=torch.tensor([s.label for s in good], dtype=torch.int64),
        damage=[s.damage for s in samples if s.damage],
    )


@dataclass
class BadSamples:
    """Counts damage met while decoding and ends the run where it is no longer an exception."""

    limit: float  # data.max_bad_rate
    enough: int  # samples seen before a rate is judged
    seen: int = 0
    bad: int = 0
    names: dict[str, None] = field(default_factory=dict)  # each once, in the order met

    def count(self, total: int, damage: list[str]) -> None:
        """Raises UserError once `enough` samples were seen and more than `limit` of them were bad."""
        self.seen += total
        self.bad += len(damage)
        self.names.update(dict.fromkeys(damage))
        if damage and self.seen >= self.enough:
            refuse_above(self.limit, self.bad, self.seen, list(self.names))


def refuse_above(limit: float, bad: int, total: int, names: list[str]) -> None:
    """Raises UserError naming bad samples if they are more than a share `limit` of the total."""
    if bad > limit * total:
        more = f"; and {len(names) - 5} more" if len(names) > 5 else ""
        raise UserError(
            f"{bad} of {total} samples are bad, more than data.max_bad_rate={limit}: {'; '.join(names[:5])}{more}"
        )


class FromStep:
    """An iterable that starts the sampler anew each time it is iterated, as DataLoader wants it."""

    def __init__(self, sampler: Sampler, start: int) -> None:
        self.sampler = sampler
        self.start = start

    def __iter__(self) -> Iterator[list[Index]]:
        return self.sampler.batches(self.start)

    def __len__(self) -> int:
        return self.sampler.total_steps - self.start


class Loader:
    """Batches of one rank, in the sampler's order whatever the number of workers."""

    def __init__(
        self, config: DataConfig, pairs: Pairs, sampler: Sampler, inputs: Inputs, tokenizer: Tokenizer
    ) -> None:
        self.sampler = sampler
        self.inputs = inputs
        self.workers = config.workers
        keywords = Keywords(config.keywords, config.keyword_digits)
        self.samples = Samples(pairs, TrainTransform(config, inputs), tokenizer, keywords, sampler.seed)
        self.bad = BadSamples(config.max_bad_rate, enough=min(1000, len(pairs)))
        refuse_above(config.max_bad_rate, len(pairs.problems), len(pairs) + len(pairs.problems), pairs.problems)

    def batches(self, start: int, device: torch.device) -> Iterator[tuple[Batch, list[str]]]:
        """Batches of steps start, start + 1, ..., each with the damage met in it.

        Raises:
            UserError: more bad samples than data.max_bad_rate, or a batch without a good one.
        """
        loader = DataLoader(
            self.samples,
            batch_sampler=FromStep(self.sampler, start),
            num_workers=self.workers,
            collate_fn=collate,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # else each start of an iterator draws from the global state
        )
        for loaded in loader:
            self.bad.count(len(loaded.sample_id) + len(loaded.damage), loaded.damage)
            if not len(loaded.sample_id):
                raise UserError(f"a batch had no good sample: {'; '.join(loaded.damage[:5])}")
            yield self._batch(loaded, device), loaded.damage

    def _batch(self, loaded: Loaded, device: torch.device) -> Batch:
        return Batch(
            sample_id=loaded.sample_id.to(device, non_blocking=True),
            image=normalise(loaded.pixels.to(device, non_blocking=True), self.inputs),
            text=loaded.text.to(device, non_blocking=True),
            label=loaded.label.to(device, non_blocking=True),
        )
