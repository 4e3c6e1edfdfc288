"""Pairs without random access: remote or endless shards (webdataset), and `datasets` in streaming mode.

A stream has no stable sample ids. Shards are drawn with replacement (resampled), so a pass over the data is only
a number of samples, data.num_samples, and a resumed run goes on with other draws than an uninterrupted one.
"""

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from clipx.config.schema import DataConfig
from clipx.data.preprocess import captions as texts
from clipx.data.preprocess.images import BadSample
from clipx.data.shards.index import COLUMN_OF
from clipx.data.sources import hf
from clipx.errors import UserError
from clipx.utils.registry import lookup, one_of


@dataclass
class Found:
    """A pair on its way to decoding, or why there is none."""

    where: str
    image: bytes = b""
    caption: str = ""
    damage: str = ""


class Stream(Protocol):
    """An endless source; `len` is what counts as an epoch."""

    streaming: Literal[True]
    problems: Sequence[str]
    fingerprint: str
    max_workers: int  # loader processes that can share the work

    def __len__(self) -> int: ...

    def pairs(self, generator: random.Random) -> Iterator[Found]:
        """Endless pairs, in an order that depends on the generator only."""
        ...


class ShardStream:
    """Shards of one or several URLs; data.url_weights are the shares of the samples."""

    streaming: Literal[True] = True
    max_workers = 1_000_000

    def __init__(self, config: DataConfig) -> None:
        from webdataset.shardlists import expand_urls

        urls = config.urls or ([config.root] if config.root else [])
        weights = config.url_weights or [1.0] * len(urls)
        if not urls:
            raise UserError("data.urls is needed for data.source=webdataset: shards, as FOLDER/{00000..00099}.tar")
        if len(weights) != len(urls) or min(weights) <= 0:
            raise UserError(f"data.url_weights={weights} must be one number above 0 for each of the {len(urls)} urls")
        one_of(config.captions, ("first", "random"), "data.captions")
        self.shards = [expand_urls(url) for url in urls]
        self.weights = weights
        self.captions = config.captions
        self.buffer = config.shuffle_buffer
        self.num_samples = declared(config)
        self.problems: Sequence[str] = []
        self.fingerprint = f"stream:{_hash([self.shards, weights])}"

    def __len__(self) -> int:
        return self.num_samples

    def pairs(self, generator: random.Random) -> Iterator[Found]:
        sources = [_shuffled(self._source(shards, generator), self.buffer, generator) for shards in self.shards]
        while True:
            (source,) = generator.choices(sources, self.weights)
            yield next(source)

    def _source(self, shards: list[str], generator: random.Random) -> Iterator[Found]:
        while True:
            yield from self._shard(generator.choice(shards), generator)

    def _shard(self, url: str, generator: random.Random) -> Iterator[Found]:
        from webdataset.tariterators import tarfile_samples

        name, found = url.rpartition("/")[2], 0
        try:
            for sample in tarfile_samples([{"url": url}]):
                found += 1
                yield self._pair(f"{name}:{sample['__key__']}", sample, generator)
        except Exception as error:  # of the opener: OSError and its own kinds; of tarfile
            yield Found(name, damage=f"cannot be read on ({type(error).__name__}: {error})")
        else:
            if not found:
                yield Found(name, damage="holds no samples")

    def _pair(self, where: str, sample: dict[str, bytes], generator: random.Random) -> Found:
        columns = {COLUMN_OF[k.lower()]: v for k, v in sample.items() if k.lower() in COLUMN_OF}
        needed = ("image", "txt" if self.captions == "first" else "json")
        missing = [column for column in needed if column not in columns]
        if missing:
            return Found(where, damage=f"lacks {', '.join(missing)}")
        try:
            first = self.captions == "first"
            caption = texts.from_txt(columns["txt"]) if first else texts.from_json(columns["json"], generator)
        except BadSample as error:
            return Found(where, damage=str(error))
        return Found(where, columns["image"], caption)


class HFStream:
    """Rows of `datasets` in streaming mode, again and again, through a shuffle buffer."""

    streaming: Literal[True] = True
    max_workers = 1  # `datasets` divides its files among workers, and there may be only one

    def __init__(self, config: DataConfig) -> None:
        lookup(hf.CHOICES, config.captions, "data.captions")
        self.config = config
        self.rows = hf.load(config, streaming=True)
        self.num_samples = declared(config)
        self.problems: Sequence[str] = []
        self.fingerprint = f"stream:{_hash([Path(str(config.root)).name, config.split])}"

    def __len__(self) -> int:
        return self.num_samples

    def pairs(self, generator: random.Random) -> Iterator[Found]:
        while True:
            rows = self.rows.shuffle(seed=generator.randrange(2**31), buffer_size=self.config.shuffle_buffer)
            number = -1
            for number, row in enumerate(rows):
                try:
                    image = hf.image_bytes(row[self.config.image_column])
                    caption = hf.caption_from(row[self.config.caption_column], self.config.captions, generator)
                    yield Found(f"row {number} of a pass", image, caption)
                except BadSample as error:
                    yield Found(f"row {number} of a pass", damage=str(error))
            if number < 0:
                yield Found(str(self.config.root), damage="holds no samples")


def declared(config: DataConfig) -> int:
    """data.num_samples. Raises UserError where it is missing, or where something is asked for that a stream has not."""
    if config.held_out:
        raise UserError(
            f"data.held_out={config.held_out} holds out samples by their ids, which data.source={config.source} has "
            "not; allowed: 0, or a source with random access"
        )
    if config.num_samples is None:
        raise UserError(f"data.num_samples is needed for data.source={config.source}: the samples of an epoch")
    return config.num_samples


def _shuffled(source: Iterator[Found], size: int, generator: random.Random) -> Iterator[Found]:
    """An endless source through a buffer from which a random element leaves at each step.

    While filling it takes two samples for each one yielded, so the first batch need not wait for a full buffer.
    """
    buffer: list[Found] = []
    while True:
        for _ in range(2 if len(buffer) < size else 1):
            buffer.append(next(source))
        place = generator.randrange(len(buffer))
        buffer[place], buffer[-1] = buffer[-1], buffer[place]
        yield buffer.pop()


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
