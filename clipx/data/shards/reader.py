"""webdataset shards with random access: an index of (shard, offset, size) gives each sample a stable id."""

import os
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from io import FileIO
from pathlib import Path

import numpy as np

from clipx.data.preprocess.images import read_error
from clipx.data.shards.index import ABSENT, Extensions, Index, open_index
from clipx.data.shards.tar import BLOCK
from clipx.errors import UserError

# Equal to sampler.CHUNK_BLOCKS: each of the blocks that are shuffled together may be in a different shard. Most systems
# allow 1,024 open files per process; the rest is for evaluation sets.
MAX_OPEN_FILES = 256


class Shards:
    """All samples with a member in each of `columns`, from a folder of tar files; ids: 0..len-1 in index order."""

    def __init__(self, folder: Path, index: Index, columns: tuple[str, ...]) -> None:
        self.folder = folder
        self.index = index
        self.columns = columns
        complete = np.logical_and.reduce([index.arrays[f"{column}_block"] != ABSENT for column in columns])
        # sample id -> row of the index; None if both are equal
        self._rows = None if complete.all() else np.flatnonzero(complete).astype(np.int32)
        # a sample whose member is damaged also lacks it: it counts once
        named = {(number, key) for number, shard in enumerate(index.shards) for key in shard.named}
        lacking = [
            row for row in np.flatnonzero(~complete).tolist() if (index.shard_of(row), index.key(row)) not in named
        ]
        self.problems = index.damage() + [self._lacks(row) for row in lacking]
        self._length = int(complete.sum())
        self._open = lru_cache(MAX_OPEN_FILES)(FileIO)  # a file is closed when it leaves the cache
        self._prefetched: set[tuple[int, int]] = set()  # (shard, block)

    @classmethod
    def open(cls, folder: Path, columns: tuple[str, ...], extensions: Extensions = ()) -> "Shards":
        """Return the samples of `folder` which have a member in each of `columns` (some of image, txt, json, cls).

        `extensions`: as for `open_index`.

        Raises UserError if there is no folder, no shard in it, or no sample with all columns.
        """
        index = open_index(folder, extensions)
        shards = cls(folder, index, columns)
        if not len(shards):
            found = f"{len(index)} samples, none with {' and '.join(columns)}"
            others = sum((Counter(shard.others) for shard in index.shards), Counter[str]())
            names = ", ".join(f"{name} ({count})" for name, count in others.most_common(5))
            reads = "data.image_column=.EXTENSION and data.caption_column=.EXTENSION read others"
            hint = [f"other extensions: {names}; {reads}"] if names else []
            raise UserError("; ".join([f"{folder} has {found}", *hint, *index.damage()[:3]]))
        return shards

    def __len__(self) -> int:
        return self._length

    def content_hash(self) -> str:
        """Return a hash of shards, keys, offsets and sizes; other bytes of the same size do not change the hash."""
        return f"{self.index.digest}/{'+'.join(self.columns)}"

    def where(self, sample_id: int) -> str:
        """Return the sample's location for messages, such as `00003.tar:000123`."""
        return self.index.where(self._row(sample_id))

    def of_shard(self, number: int) -> range:
        """Return the sample ids of a shard."""
        rows = self.index.starts[number : number + 2]
        return range(*(rows if self._rows is None else np.searchsorted(self._rows, rows)).tolist())

    def has(self, sample_id: int, column: str) -> bool:
        """Return True if the sample has a member in this column."""
        return bool(self.index.arrays[f"{column}_block"][self._row(sample_id)] != ABSENT)

    def offset(self, sample_id: int, column: str) -> int:
        """Return the offset of the member's first data byte in the shard."""
        return int(self.index.arrays[f"{column}_block"][self._row(sample_id)]) * BLOCK

    def read(self, sample_id: int, column: str) -> bytes:
        """Return the member's bytes.

        Raises:
            BadSample: the disk cannot read these bytes.
            Fault: the network drive has failed.
            UserError: the shard cannot be opened or read for another reason.

        Processes may share the open file, because os.pread does not move the file position.
        """
        row = self._row(sample_id)
        path, size = self._path(self.index.shard_of(row)), int(self.index.arrays[f"{column}_size"][row])
        try:
            file = self._open(path)
            return os.pread(file.fileno(), size, self.offset(sample_id, column))
        except OSError as error:
            raise read_error(error, path, is_shard=True) from error

    def prefetch(self, sample_id: int, block: int) -> None:
        """Ask the system to read the sample's block of `block` neighbouring samples into memory, in one disk access.

        If the block spans two shards, only the part in the sample's shard is read.
        """
        shard, number = self.index.shard_of(self._row(sample_id)), sample_id // block
        if (shard, number) in self._prefetched:
            return
        if len(self._prefetched) >= 1024:  # only about CHUNK_BLOCKS (256) are in use, the others are old
            self._prefetched.clear()
        self._prefetched.add((shard, number))
        in_shard, column = self.of_shard(shard), self.columns[0]
        first, last = max(number * block, in_shard.start), min((number + 1) * block, in_shard.stop) - 1
        begin, size = self.offset(first, column), int(self.index.arrays[f"{column}_size"][self._row(last)])
        end = self.offset(last, column) + size + 64 * BLOCK  # 32 KiB for the last sample's texts, after its image
        with suppress(OSError):  # prefetching is optional; `read` reports errors
            file = self._open(self._path(shard))
            os.posix_fadvise(file.fileno(), begin, end - begin, os.POSIX_FADV_WILLNEED)

    def _path(self, shard: int) -> Path:
        return self.folder / self.index.shards[shard].name

    def _lacks(self, row: int) -> str:
        missing = [column for column in self.columns if self.index.arrays[f"{column}_block"][row] == ABSENT]
        return f"{self.index.where(row)} lacks {', '.join(missing)}"

    def _row(self, sample_id: int) -> int:
        return sample_id if self._rows is None else int(self._rows[sample_id])
