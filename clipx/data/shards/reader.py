"""webdataset shards with random access: an index of (shard, offset, size) gives each sample a stable id.

A sample is a run of members with the same key: the member's name up to the first dot after the last slash.
"""

import errno
import io
import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clipx.data.preprocess.images import BadSample
from clipx.data.shards.index import ABSENT, Index, open_index
from clipx.data.shards.tar import BLOCK
from clipx.errors import UserError
from clipx.utils.files import cache_home, write_bytes

Rows = NDArray[np.int32]
# Equal to sampler.CHUNK_BLOCKS: each of the blocks shuffled together may be in another shard. This is a quarter of a
# process's usual limit, which leaves room for evaluation sets.
MAX_OPEN_FILES = 256


class OpenFiles:
    """File descriptors by name: at most MAX_OPEN_FILES, the least recently used is closed first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: OrderedDict[str, int] = OrderedDict()  # most recently used last

    def get(self, name: str) -> int:
        """Return the descriptor of a file, valid until the next call. Raises OSError."""
        if name in self._open:
            self._open.move_to_end(name)
        else:
            while len(self._open) >= MAX_OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
            self._open[name] = os.open(self.folder / name, os.O_RDONLY)
        return self._open[name]

    def __reduce__(self) -> tuple[type["OpenFiles"], tuple[Path]]:
        """Pickle without descriptors: they are not valid in another process."""
        return OpenFiles, (self.folder,)

    def __del__(self) -> None:
        for file in self._open.values():
            os.close(file)


class Shards:
    """The samples of a folder of tar files that have all required members; ids are 0..len-1 in index order."""

    def __init__(self, folder: Path, index: Index, extensions: tuple[str, ...]) -> None:
        self.folder = folder
        self.index = index
        self.extensions = extensions
        complete = np.ones(len(index), bool)
        for column in extensions:
            complete &= index.arrays[f"{column}_block"] != ABSENT
        # sample id -> row of the index; None if both are equal
        self._rows = None if complete.all() else _shared(np.flatnonzero(complete).astype(np.int32), index, extensions)
        self.problems: Sequence[str] = Problems(index, extensions, np.flatnonzero(~complete))
        self._length = int(complete.sum())
        self._files = OpenFiles(folder)
        self._prefetched: set[tuple[int, int]] = set()  # (shard, block)

    @classmethod
    def open(cls, folder: Path, extensions: tuple[str, ...]) -> "Shards":
        """Return the samples of `folder` that have all of `extensions` (of image, txt, json, cls).

        Raises UserError if there is no folder, no shard in it, or no sample with all extensions.
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
        """Return a hash of shards, keys, offsets and sizes; it does not detect changed bytes of the same size."""
        return f"{self.index.digest}/{'+'.join(self.extensions)}"

    def key(self, index: int) -> str:
        """Return the sample's key in its shard."""
        return self.index.key(self._row(index))

    def where(self, index: int) -> str:
        """Return the sample's location for messages, such as `00003.tar:000123`."""
        return self.index.where(self._row(index))

    def of_shard(self, number: int) -> range:
        """Return the sample ids of a shard."""
        rows = self.index.starts[number : number + 2]
        return range(*(rows if self._rows is None else np.searchsorted(self._rows, rows)).tolist())

    def has(self, index: int, column: str) -> bool:
        """Return True if the sample has a member in this column."""
        return bool(self.index.arrays[f"{column}_block"][self._row(index)] != ABSENT)

    def offset(self, index: int, column: str) -> int:
        """Return the offset of the member's first byte in its shard."""
        return int(self.index.arrays[f"{column}_block"][self._row(index)]) * BLOCK

    def read(self, index: int, column: str) -> bytes:
        """Return the member's bytes. Processes may share the open file, because the read does not move its position.

        Raises BadSample for a read error of the disk, OSError for other errors, which are not the sample's fault.
        """
        row = self._row(index)
        size = int(self.index.arrays[f"{column}_size"][row])
        try:
            return os.pread(self._file(self.index.shard_of(row)), size, self.offset(index, column))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise BadSample(f"cannot be read ({error})") from error

    def prefetch(self, index: int, block: int) -> None:
        """Ask the system to read ahead the block of `block` samples that contains the sample, in one disk access.

        If the block spans two shards, only the part in the sample's shard is read.
        """
        shard, number = self.index.shard_of(self._row(index)), index // block
        if (shard, number) in self._prefetched:
            return
        if len(self._prefetched) >= 1024:  # enough for all blocks that are being read; the rest are old
            self._prefetched.clear()
        self._prefetched.add((shard, number))
        in_shard, column = self.of_shard(shard), self.extensions[0]
        first, last = max(number * block, in_shard.start), min((number + 1) * block, in_shard.stop) - 1
        begin, size = self.offset(first, column), int(self.index.arrays[f"{column}_size"][self._row(last)])
        end = self.offset(last, column) + size + 64 * BLOCK  # the last sample's texts follow its image
        with suppress(OSError):  # this is only advice to the system; `read` reports errors
            os.posix_fadvise(self._file(shard), begin, end - begin, os.POSIX_FADV_WILLNEED)

    def _file(self, shard: int) -> int:
        return self._files.get(self.index.shards[shard].name)

    def _row(self, index: int) -> int:
        return index if self._rows is None else int(self._rows[index])


class Problems(Sequence[str]):
    """Corrupt places in the shards, then incomplete samples. Lines are built on demand, as there may be 100,000."""

    def __init__(self, index: Index, extensions: tuple[str, ...], incomplete: NDArray[np.int64]) -> None:
        self._index = index
        self._extensions = extensions
        self._incomplete = incomplete
        self._damage = index.damage()

    def __len__(self) -> int:
        return len(self._damage) + len(self._incomplete)

    def __getitem__(self, place: Any) -> Any:
        """Return a line for an int, a list of lines for a slice."""
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if place < len(self._damage):
            return self._damage[place]
        row = int(self._incomplete[place - len(self._damage)])
        missing = [c for c in self._extensions if self._index.arrays[f"{c}_block"][row] == ABSENT]
        return f"{self._index.where(row)} lacks {', '.join(missing)}"


def shard_paths(folder: Path) -> list[Path]:
    """Return the .tar files of a folder, sorted by name. Raises UserError if there is none."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}: give the folder that holds the .tar shards")
    # glob would return nothing for an unreadable folder; scandir raises an error
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".tar"))
    if not names:
        raise UserError(f"{folder} holds no .tar shards")
    return [folder / name for name in names]


def _shared(rows: Rows, index: Index, extensions: tuple[str, ...]) -> Rows:
    """Return the rows memory-mapped from a file in the cache, so that all ranks of a machine share one copy."""
    path = cache_home() / "index" / "rows" / f"{index.digest}-{'-'.join(extensions)}.npy"
    shared = _mapped(path)
    if shared is None or not np.array_equal(shared, rows):  # missing or corrupt
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
