"""Reads every sample of a folder of shards once, as training would: image decoded, caption checked."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from clipx.data import captions
from clipx.data.images import BadSample, decode
from clipx.data.shards import Shards


@dataclass
class Checked:
    """What was found in a shard."""

    samples: int = 0
    size: int = 0  # bytes read
    damage: dict[str, str] = field(default_factory=dict)  # where -> why


def verify(folder: Path, shards: Shards, workers: int) -> Iterator[Checked]:
    """Shard by shard, in order, `workers` of them at a time."""
    check = partial(_check, folder, shards.extensions)
    numbers = range(len(shards.index.shards))
    if workers == 1:
        yield from map(check, numbers)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
        yield from pool.map(check, numbers)


def _check(folder: Path, extensions: tuple[str, ...], number: int) -> Checked:
    shards = Shards.open(folder, extensions)  # memory-mapped, so cheaper than to send it to the process
    image, text = extensions
    found = Checked()
    for i in shards.of_shard(number):
        data, caption = shards.read(i, image), shards.read(i, text)
        found.samples += 1
        found.size += len(data) + len(caption)
        try:
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
