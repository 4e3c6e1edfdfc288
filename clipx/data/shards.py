"""webdataset shards with random access: an index of (shard, offset, size) gives each sample a stable id.

A sample is the run of members that share a key, the name up to the first dot after the last slash.
The index of a folder is built once and cached by the shards' names, sizes and modification times.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clipx.atomic import new_folder
from clipx.cache import cache_home
from clipx.data.tar import Member, scan
from clipx.errors import UserError

COLUMN_OF = {
    "jpg": "image", "jpeg": "image", "png": "image", "webp": "image",
    "txt": "txt", "json": "json", "cls": "cls",
}  # fmt: skip
COLUMNS = ("image", "txt", "json", "cls")
ABSENT = -1  # offset of a member that a sample does not have
RECORD = np.dtype(
    [("shard", np.int32)] + [(f"{c}_offset", np.int64) for c in COLUMNS] + [(f"{c}_size", np.int32) for c in COLUMNS]
)
FORMAT = "1"  # of the cached index


class Shards:
    """Samples of a folder of tar files; ids are 0..len-1 in the order of shard names and members."""

    def __init__(self, folder: Path, paths: list[Path], fingerprint: str) -> None:
        self.folder = folder
        self.paths = paths
        self.fingerprint = fingerprint
        self.records: NDArray[np.void] = np.empty(0, RECORD)
        self.keys: NDArray[np.bytes_] = np.empty(0, "S1")
        self.problems: list[str] = []
        self._files: dict[int, int] = {}

    @classmethod
    def open(cls, folder: Path, extensions: tuple[str, ...]) -> "Shards":
        """The samples of `folder` that have all of `extensions` (of image, txt, json, cls).

        Raises:
            UserError: no folder, no shards in it, or no sample with all extensions.
        """
        if not folder.is_dir():
            raise UserError(f"no folder {folder}: give the folder that holds the .tar shards")
        # not glob, for which a folder that may not be read is an empty one
        paths = sorted(Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(".tar"))
        if not paths:
            raise UserError(f"{folder} holds no .tar shards")
        stats = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in paths]
        shards = cls(folder, paths, _hash([(name, size) for name, size, _ in stats]))
        shards.records, shards.keys, problems = _cached_index(paths, _hash([FORMAT, stats]))
        records, keys = shards.records, shards.keys
        complete = np.ones(len(records), bool)
        for column in extensions:
            complete &= records[f"{column}_offset"] != ABSENT
        if not complete.any():
            found = f"{len(records)} samples, none with {' and '.join(extensions)}"
            raise UserError("; ".join([f"{folder} has {found}", *problems[:3]]))
        shards.problems = problems + [
            f"{shards.where(i)} lacks {', '.join(c for c in extensions if not shards.has(i, c))}"
            for i in np.flatnonzero(~complete).tolist()
        ]
        if not complete.all():
            shards.records, shards.keys = records[complete], keys[complete]
        return shards

    def __getstate__(self) -> dict[str, Any]:
        """File descriptors mean nothing in a loader process that was spawned."""
        return {**self.__dict__, "_files": {}}

    def __len__(self) -> int:
        return len(self.records)

    def content_hash(self) -> str:
        """Changes with any shard, key, offset or size of a member: of compressed images, with any content."""
        digest = hashlib.sha256(self.fingerprint.encode())
        digest.update(self.records.tobytes())
        digest.update(self.keys.tobytes())
        return digest.hexdigest()[:16]

    def key(self, index: int) -> str:
        """The sample's key in its shard."""
        return bytes(self.keys[index]).decode()

    def where(self, index: int) -> str:
        """`00003.tar:000123`, for messages."""
        return f"{self.paths[self.records[index]['shard']].name}:{self.key(index)}"

    def has(self, index: int, column: str) -> bool:
        """Whether the sample has a member of this column."""
        return bool(self.records[index][f"{column}_offset"] != ABSENT)

    def read(self, index: int, column: str) -> bytes:
        """The member's bytes; one positioned read, no shared file position, so any process may call it."""
        record = self.records[index]
        shard = int(record["shard"])
        if shard not in self._files:
            self._files[shard] = os.open(self.paths[shard], os.O_RDONLY)
        return os.pread(self._files[shard], int(record[f"{column}_size"]), int(record[f"{column}_offset"]))


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _cached_index(paths: list[Path], name: str) -> tuple[NDArray[np.void], NDArray[np.bytes_], list[str]]:
    """records, keys and damage lines, memory-mapped from the cache; built on the first call."""
    folder = cache_home() / "index" / name
    if not folder.is_dir():
        records, keys, problems = build_index(paths)
        with new_folder(folder) as made:
            np.save(made / "records.npy", records)
            np.save(made / "keys.npy", keys)
            (made / "problems.json").write_text(json.dumps(problems))
    records = np.load(folder / "records.npy", mmap_mode="r")
    keys = np.load(folder / "keys.npy", mmap_mode="r")
    return records, keys, json.loads((folder / "problems.json").read_text())


def build_index(paths: list[Path]) -> tuple[NDArray[np.void], NDArray[np.bytes_], list[str]]:
    """One pass over the tar headers: a record and a key for every sample, and a line for every damage."""
    rows: list[tuple[int, ...]] = []
    keys: list[bytes] = []
    problems: list[str] = []
    for shard, path in enumerate(paths):
        members, damage = scan(path)
        problems += damage
        for key, columns in _samples(members):
            found = [columns.get(c, (ABSENT, 0)) for c in COLUMNS]
            rows.append((shard, *(offset for offset, _ in found), *(size for _, size in found)))
            keys.append(key.encode("utf-8", "backslashreplace"))
    return np.array(rows, RECORD), np.array(keys, "S") if keys else np.empty(0, "S1"), problems


def _samples(members: list[Member]) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    def key_of(member: Member) -> str:
        folder, slash, base = member.name.rpartition("/")
        return folder + slash + base.partition(".")[0]

    for key, group in groupby(members, key_of):
        columns = {}
        for member in group:
            extension = member.name.rpartition("/")[2].partition(".")[2].lower()
            if extension in COLUMN_OF:
                columns[COLUMN_OF[extension]] = (member.offset, member.size)
        if columns:
            yield key, columns
