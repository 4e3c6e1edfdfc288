"""The interface of a source with random access, and the source for webdataset shards."""

import hashlib
import random
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from clipx.data.preprocess import captions as texts
from clipx.data.preprocess.images import BadSample
from clipx.data.shards.index import Extensions
from clipx.data.shards.reader import Shards
from clipx.utils.registry import lookup

SAMPLED = 64  # number of evenly spaced samples that represent a data set


class PairSource(Protocol):
    """Image-text pairs by sample id."""

    streaming: Literal[False] = False
    problems: Sequence[str] = ()  # found without decoding: a line per sample left out, and per shard with unused images
    fingerprint: str  # changes if the samples or their order change
    has_negatives: bool = False  # True: `negative` is available
    draws_caption: bool = False  # True: `pair` draws one of the captions; False: it takes the first

    def __len__(self) -> int: ...

    def where(self, sample_id: int) -> str:
        """Return the location of a sample, for messages."""

    def image(self, sample_id: int) -> bytes:
        """Return the encoded image. Raises BadSample if it is unusable."""

    def captions(self, sample_id: int) -> list[str]:
        """Return the captions, at least one. Raises BadSample if they cannot be read."""

    def caption(self, sample_id: int, generator: random.Random) -> str:
        """Return one caption without reading the image. Raises BadSample if it is unusable."""
        return texts.choose_caption(self.captions(sample_id), self.draws_caption, generator)

    def pair(self, sample_id: int, generator: random.Random) -> tuple[bytes, str]:
        """Return the encoded image and one caption. Raises BadSample if either is unusable."""
        caption = self.caption(sample_id, generator)
        return self.image(sample_id), caption

    def negative(self, sample_id: int, caption: str) -> str:
        """Return a false caption similar to `caption`, a caption of the sample. Raises BadSample if there is none."""
        raise BadSample("the source has no negative captions")

    def image_of(self) -> NDArray[np.int32] | None:
        """Return the image number (from 0) of each sample, int32 [n]; None if no two samples share an image."""
        return None

    def image_sizes(self) -> list[int]:
        """Return the sizes of some image files in bytes if the fingerprint covers only names: part of a cache's key."""
        return []

    def stamp(self) -> str | None:
        """Return a hash of size and time of all image files; None if the source cannot tell that a file has changed."""
        return None

    def group_of(self) -> NDArray[np.int32] | None:
        """Return the group number (from 0) of each sample, int32 [n]; None without groups. Default: image numbers."""
        return self.image_of()


def evenly_spaced(count: int) -> list[int]:
    """Return SAMPLED evenly spaced numbers from 0 to count - 1; some are equal if there are fewer."""
    return [k * (count - 1) // (SAMPLED - 1) for k in range(SAMPLED)]


def sampled_contents(source: PairSource) -> dict[str, str]:
    """Return place -> hash of the image and captions of some evenly spaced samples, without unusable ones.

    A resumed run compares them: the fingerprint does not show every replaced image.
    """
    found = {}
    for sample_id in dict.fromkeys(evenly_spaced(len(source))):
        with suppress(BadSample):
            content = source.image(sample_id) + repr(source.captions(sample_id)).encode()
            found[source.where(sample_id)] = hashlib.sha256(content).hexdigest()[:16]
    return found


def stamp_of(files: Iterable[Path]) -> str:
    """Return a hash of names, sizes and times of the files that exist."""
    sha = hashlib.sha256()
    for file in files:
        with suppress(OSError, ValueError):  # ValueError: a NUL byte in the name
            status = file.stat()
            sha.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return sha.hexdigest()[:16]


class ShardPairs(PairSource):
    """Pairs from a folder of webdataset shards, prefetched in blocks of `block` neighbours; 0: no prefetching.

    The list `negatives` of a .json member has a negative for each of the sample's captions, in their order.
    """

    has_negatives = True

    def __init__(self, folder: Path, captions: str, block: int, extensions: Extensions = ()) -> None:
        """`extensions`: as for `open_index`."""
        self.block = block
        self.column = lookup(texts.MEMBERS, captions, "data.captions")
        self.draws_caption = captions == "random"
        self.shards = Shards.open(folder, ("image", self.column), extensions)
        self.problems = self.shards.problems
        self.fingerprint = f"{len(self.shards)}:{self.shards.content_hash()}"

    def __len__(self) -> int:
        return len(self.shards)

    def where(self, sample_id: int) -> str:
        return self.shards.where(sample_id)

    def pair(self, sample_id: int, generator: random.Random) -> tuple[bytes, str]:
        if self.block:
            self.shards.prefetch(sample_id, self.block)
        return super().pair(sample_id, generator)

    def image(self, sample_id: int) -> bytes:
        return self.shards.read(sample_id, "image")

    def captions(self, sample_id: int) -> list[str]:
        return texts.all_from_member(self.column, self.shards.read(sample_id, self.column))

    def stamp(self) -> str:
        return stamp_of([self.shards.folder / shard.name for shard in self.shards.index.shards])

    def negative(self, sample_id: int, caption: str) -> str:
        number = [texts.plain(one) for one in self.captions(sample_id)].index(caption)
        data = self.shards.read(sample_id, "json") if self.shards.has(sample_id, "json") else b"{}"
        negatives = texts.all_from_json(data, "negatives")
        if number >= len(negatives):
            raise BadSample(f'"negatives" in .json has {len(negatives)} texts, none for caption {number + 1}')
        return texts.stripped(negatives[number])
