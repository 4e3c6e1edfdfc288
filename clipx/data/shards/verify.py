"""Reads every sample of a folder of shards once, as training would: image decoded, caption checked."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from clipx.data.preprocess import captions
from clipx.data.preprocess.images import BadSample, decode
from clipx.data.shards.reader import Shards


@dataclass
class Checked:
    """What was found in a shard."""

    samples: int = 0
    size: int = 0  # bytes read
    damage: dict[str, str] = field(default_factory=dict)  # where -> why


def verify(shards: Shards, workers: int) -> Iterator[Checked]:
    """Shard by shard, in order, `workers` of them at a time."""
    numbers = range(len(shards.index.shards))
    if workers == 1:
        yield from (_check(shards, number) for number in numbers)
        return
    # once for each process, and not with each shard: the index would be sent with it
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_keep, initargs=(shards,)) as pool:
        yield from pool.map(_check_kept, numbers)


_kept: list[Shards] = []  # of a process of the pool


def _keep(shards: Shards) -> None:
    _kept.append(shards)


def _check_kept(number: int) -> Checked:
    return _check(_kept[0], number)


def _check(shards: Shards, number: int) -> Checked:
    image, text = shards.extensions
    found = Checked()
    for i in shards.of_shard(number):
        found.samples += 1
        try:
            data, caption = shards.read(i, image), shards.read(i, text)
            found.size += len(data) + len(caption)
            decode(data)
            CHECKS[text](caption)
        except BadSample as error:
            found.damage[shards.where(i)] = str(error)
    return found


def _json(data: bytes) -> None:
    for caption in captions.all_from_json(data):
        captions.checked(caption)


def _class(data: bytes) -> None:
    if not data.strip().isdigit():
        raise BadSample(".cls is not a number")


CHECKS = {"txt": captions.from_txt, "json": _json, "cls": _class}
