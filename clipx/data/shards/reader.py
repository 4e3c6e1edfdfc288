"""webdataset shards with random access: an index of (shard, offset, size) gives each sample a stable id.

A sample is the run of members that share a key, the name up to the first dot after the last slash.
"""

import errno
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from clipx.data.preprocess.images import BadSample
from clipx.data.shards.file_handles import OpenFiles
from clipx.data.shards.index import ABSENT, Index, open_index
from clipx.data.shards.tar import BLOCK
from clipx.errors import UserError
from clipx.utils.files import cache_home, write_bytes

Rows = NDArray[np.int32]


class Shards:
    """The samples of a folder of tar files that have all members asked for; ids are 0..len-1 in the index's order."""

    def __init__(self, folder: Path, index: Index, extensions: tuple[str, ...]) -> None:
        self.folder = folder
        self.index = index
        self.extensions = extensions
        complete = np.ones(len(index), bool)
        for column in extensions:
            complete &= index.arrays[f"{column}_block"] != ABSENT
        # row of the index by sample id; None: the same
        self._rows = None if complete.all() else _shared(np.flatnonzero(complete).astype(np.int32), index, extensions)
        self.problems: Sequence[str] = Problems(index, extensions, np.flatnonzero(~complete))
        self._length = int(complete.sum())
        self._files = OpenFiles(folder)
        self._fetched: set[tuple[int, int]] = set()  # (shard, block)

    @classmethod
    def open(cls, folder: Path, extensions: tuple[str, ...]) -> "Shards":
        """The samples of `folder` that have all of `extensions` (of image, txt, json, cls).

        Raises:
            UserError: no folder, no shards in it, or no sample with all extensions.
        """
        index = open_index(folder, shard_paths(folder))
        shards = cls(folder, index, extensions)
        if not len(shards):
            found = f"{len(index)} samples, none with {' and '.join(extensions)}"
            raise UserError("; ".join([f"{folder} has {found}", *index.damage()[:3]]))
        return shards

    def __len__(self) -> int:
        return self._length

    def content_hash(self) -> str:
        """Changes with any shard, key, offset or size of a member; not with other bytes of the same size."""
        return f"{self.index.digest}/{'+'.join(self.extensions)}"

    def key(self, index: int) -> str:
        """The sample's key in its shard."""
        return self.index.key(self._row(index))

    def where(self, index: int) -> str:
        """`00003.tar:000123`, for messages."""
        return self.index.where(self._row(index))

    def of_shard(self, number: int) -> range:
        """The samples of a shard."""
        rows = self.index.starts[number : number + 2]
        return range(*(rows if self._rows is None else np.searchsorted(self._rows, rows)).tolist())

    def has(self, index: int, column: str) -> bool:
        """Whether the sample has a member of this column."""
        return bool(self.index.arrays[f"{column}_block"][self._row(index)] != ABSENT)

    def offset(self, index: int, column: str) -> int:
        """First byte of the member in its shard."""
        return int(self.index.arrays[f"{column}_block"][self._row(index)]) * BLOCK

    def read(self, index: int, column: str) -> bytes:
        """The member's bytes; one positioned read, no shared file position, so any process may call it.

        Raises:
            BadSample: the disk cannot read it there.
            OSError: the shard is away, which says nothing about its samples.
        """
        row = self._row(index)
        size = int(self.index.arrays[f"{column}_size"][row])
        try:
            return os.pread(self._file(self.index.shard_of(row)), size, self.offset(index, column))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise BadSample(f"cannot be read ({error})") from error

    def fetch(self, index: int, block: int) -> None:
        """Asks the system for the block of `block` samples that a sample is in, as one run of the disk.

        Of a block that lies in two shards, the samples in this one's.
        """
        shard, number = self.index.shard_of(self._row(index)), index // block
        if (shard, number) in self._fetched:
            return
        if len(self._fetched) >= 1024:  # of an earlier epoch by now
            self._fetched.clear()
        self._fetched.add((shard, number))
        own, column = self.of_shard(shard), self.extensions[0]
        first, last = max(number * block, own.start), min((number + 1) * block, own.stop) - 1
        begin, size = self.offset(first, column), int(self.index.arrays[f"{column}_size"][self._row(last)])
        end = self.offset(last, column) + size + 64 * BLOCK  # the texts follow
        with suppress(OSError):  # only advice: `read` says what is wrong
            os.posix_fadvise(self._file(shard), begin, end - begin, os.POSIX_FADV_WILLNEED)

    def _file(self, shard: int) -> int:
        return self._files.get(self.index.shards[shard].name)

    def _row(self, index: int) -> int:
        return index if self._rows is None else int(self._rows[index])


class Problems(Sequence[str]):
    """Damage of the shards, then samples that lack a member. Lines are made when asked for: there may be 100,000."""

    def __init__(self, index: Index, extensions: tuple[str, ...], incomplete: NDArray[np.int64]) -> None:
        self._index = index
        self._extensions = extensions
        self._incomplete = incomplete
        self._damage = index.damage()

    def __len__(self) -> int:
        return len(self._damage) + len(self._incomplete)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if place < len(self._damage):
            return self._damage[place]
        row = int(self._incomplete[place - len(self._damage)])
        missing = [c for c in self._extensions if self._index.arrays[f"{c}_block"][row] == ABSENT]
        return f"{self._index.where(row)} lacks {', '.join(missing)}"


def shard_paths(folder: Path) -> list[Path]:
    """The .tar files of a folder by name.

    Raises:
        UserError: no folder, or none in it.
    """
    if not folder.is_dir():
        raise UserError(f"no folder {folder}: give the folder that holds the .tar shards")
    # not glob, for which a folder that may not be read is an empty one
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".tar"))
    if not names:
        raise UserError(f"{folder} holds no .tar shards")
    return [folder / name for name in names]


def _shared(rows: Rows, index: Index, extensions: tuple[str, ...]) -> Rows:
    """The rows as a file of the cache, so that the ranks of a machine have them in memory once."""
    path = cache_home() / "index" / "rows" / f"{index.digest}-{'-'.join(extensions)}.npy"
    shared = _mapped(path)
    if shared is None or not np.array_equal(shared, rows):  # none yet, or damaged
        file = io.BytesIO()
        np.save(file, rows)
        write_bytes(path, file.getvalue())
        shared = _mapped(path)
    assert shared is not None, path
    return shared


def _mapped(path: Path) -> Rows | None:
    try:
        mapped: Rows = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return mapped
