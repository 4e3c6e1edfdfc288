"""Check of a folder of shards: read every sample once, decode its image and check its text, as training would."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from clipx.data.preprocess import captions
from clipx.data.preprocess.images import BadSample, decode
from clipx.data.shards.reader import Shards


@dataclass
class ShardReport:
    """The result for one shard."""

    samples: int = 0
    size: int = 0  # bytes read
    damage: dict[str, str] = field(default_factory=dict)  # location of a bad sample -> reason


def verify(shards: Shards, workers: int) -> Iterator[ShardReport]:
    """Yield a report per shard, in order; `workers` processes check the shards."""
    # The initializer gives `shards` to each process once. An argument of _check would be sent again for every shard.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_pool_shards.append, initargs=(shards,)) as pool:
        yield from pool.map(_check, range(len(shards.index.shards)))


_pool_shards: list[Shards] = []  # holds one element in each process of the pool


def _check(number: int) -> ShardReport:
    (shards,) = _pool_shards
    image, text = shards.columns
    report = ShardReport()
    for i in shards.of_shard(number):
        report.samples += 1
        try:
            image_data, text_data = shards.read(i, image), shards.read(i, text)
            report.size += len(image_data) + len(text_data)
            decode(image_data)
            _check_text(text, text_data)
        except BadSample as error:
            report.damage[shards.where(i)] = str(error)
    return report


def _check_text(column: str, data: bytes) -> None:
    if column != "cls":
        for caption in captions.all_from_member(column, data):
            captions.stripped(caption)
    elif not data.strip().isdigit():
        raise BadSample(".cls is not a number")
