"""The index of a folder of shards: where each sample's members lie, in arrays that all processes share.

Samples are numbered shard by shard. When shards are added, theirs come after all others, so that old numbers
stay; only new and changed shards are read. `clipx data index` puts the index beside the shards; without it, it is
in the cache. A member takes 8 bytes (block and size), and columns that a run does not read are never loaded.
"""

import hashlib
import json
import multiprocessing
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clipx.data.shards import tar
from clipx.data.shards.tar import BLOCK, Member
from clipx.utils.files import cache_home, new_folder

COLUMN_OF = {
    "jpg": "image", "jpeg": "image", "png": "image", "webp": "image",
    "txt": "txt", "json": "json", "cls": "cls",
}  # fmt: skip
COLUMNS = ("image", "txt", "json", "cls")
ARRAYS = (*(f"{c}_{what}" for c in COLUMNS for what in ("block", "size")), "key_bytes", "key_end", "key_hash")
ABSENT = 0  # block of a member that a sample does not have: data never start at block 0, where a header is
PUBLISHED = "clipx_index"  # the index's folder beside the shards
FORMAT = 2
POOL_PAYS = 256 * 2**20  # bytes of shards above which processes are started to scan them

Arrays = dict[str, NDArray[np.generic]]


@dataclass
class Shard:
    """What is known of a shard beside its samples."""

    name: str
    size: int  # bytes
    mtime_ns: int
    samples: int = 0
    key_bytes: int = 0
    damage: list[str] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)  # extension -> members that are no column


@dataclass
class Index:
    """Shards and arrays, memory-mapped when they come from a folder.

    `<column>_block` and `<column>_size` are uint32 [n]: a member's data begin at 512 x block, ABSENT if there are
    none. Keys are concatenated per shard; `key_end` is the end offset of each.
    """

    shards: list[Shard]
    arrays: Arrays
    digest: str  # of names, keys and places

    def __post_init__(self) -> None:
        self.starts: NDArray[np.int64] = np.cumsum([0] + [s.samples for s in self.shards])
        self.key_starts: NDArray[np.int64] = np.cumsum([0] + [s.key_bytes for s in self.shards])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def shard_of(self, row: int) -> int:
        """The shard that holds a sample."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def key(self, row: int) -> str:
        """A sample's key."""
        shard = self.shard_of(row)
        base, end = int(self.key_starts[shard]), self.arrays["key_end"]
        begin = int(end[row - 1]) if row > self.starts[shard] else 0
        return self.arrays["key_bytes"][base + begin : base + int(end[row])].tobytes().decode()

    def where(self, row: int) -> str:
        """`00003.tar:000123`, for messages."""
        return f"{self.shards[self.shard_of(row)].name}:{self.key(row)}"

    def damage(self) -> list[str]:
        """A line for every damage found."""
        return [line for shard in self.shards for line in shard.damage]

    def duplicates(self) -> NDArray[np.int64]:
        """Samples whose key has been met before."""
        _, first = np.unique(self.arrays["key_hash"], return_index=True)
        again = np.ones(len(self), bool)
        again[first] = False
        return np.flatnonzero(again)

    def part(self, shard: int) -> Arrays:
        """A shard's share of the arrays."""
        rows, keys = slice(*self.starts[shard : shard + 2]), slice(*self.key_starts[shard : shard + 2])
        return {name: array[keys if name == "key_bytes" else rows] for name, array in self.arrays.items()}


def open_index(folder: Path, paths: list[Path]) -> Index:
    """The index of these shards of a folder, read where it is up to date, else written into the cache."""
    now = [Shard(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in paths]
    cache = cache_home() / "index" / _hash(str(folder.resolve()))
    cached = sorted(cache.glob("[!.]*"), key=lambda p: p.stat().st_mtime_ns, reverse=True)
    found = [index for place in (folder / PUBLISHED, *cached) if (index := load(place)) is not None]
    wanted = {_state(s) for s in now}
    for index in found:
        if {_state(s) for s in index.shards} == wanted:
            return index
    place = cache / _hash([FORMAT, sorted(wanted)])
    for _ in range(2):  # another process may have written it by now, or have removed ours as a damaged one
        if (loaded := load(place)) is not None:
            return loaded
        shutil.rmtree(place, ignore_errors=True)
        with new_folder(place) as made:
            save(build_index(folder, now, found[0] if found else None), made)
    loaded = load(place)
    assert loaded is not None, place
    return loaded


def publish(index: Index, folder: Path) -> Path:
    """Puts the index beside the shards, in place of an older one."""
    place = folder / PUBLISHED
    shutil.rmtree(place, ignore_errors=True)
    with new_folder(place) as made:
        save(index, made)
    return place


def build_index(folder: Path, now: list[Shard], base: Index | None) -> Index:
    """One pass over the new and changed shards; the order is that of `base`, then of names."""
    known = {s.name: i for i, s in enumerate(base.shards)} if base else {}
    ordered = sorted(now, key=lambda s: (known.get(s.name, len(known)), s.name))
    unchanged = {_state(s) for s in base.shards} if base else set()
    changed = [s for s in ordered if _state(s) not in unchanged]
    scanned = dict(zip([s.name for s in changed], _scan_all(folder, changed), strict=True))
    shards, parts = [], []
    for shard in ordered:
        if shard.name in scanned:
            done, arrays = scanned.pop(shard.name)
        else:
            assert base is not None
            done, arrays = base.shards[known[shard.name]], base.part(known[shard.name])
        shards.append(done)
        parts.append(arrays)
    # name by name, and each part let go, so that the peak is one copy of the index
    arrays = {name: np.concatenate([part.pop(name) for part in parts]) for name in ARRAYS}
    return Index(shards, arrays, _digest(shards, arrays))


def save(index: Index, folder: Path) -> None:
    """Writes an index into an empty folder."""
    for name, array in index.arrays.items():
        np.save(folder / f"{name}.npy", array)
    content = {"format": FORMAT, "digest": index.digest, "shards": [asdict(s) for s in index.shards]}
    (folder / "shards.json").write_text(json.dumps(content))


def load(folder: Path) -> Index | None:
    """The index in a folder, memory-mapped; None where there is none that can be used."""
    try:
        content = json.loads((folder / "shards.json").read_text())
        if content["format"] != FORMAT:
            return None
        shards = [Shard(**s) for s in content["shards"]]
        arrays: Arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
        index = Index(shards, arrays, str(content["digest"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    lengths = {name: int(index.key_starts[-1]) if name == "key_bytes" else len(index) for name in ARRAYS}
    return index if all(len(arrays[name]) == n for name, n in lengths.items()) else None


def _scan_all(folder: Path, shards: list[Shard]) -> Iterator[tuple[Shard, Arrays]]:
    scan_one = partial(_scan_shard, folder)
    if len(shards) < 2 or sum(s.size for s in shards) < POOL_PAYS:
        yield from map(scan_one, shards)
        return
    workers = min(len(os.sched_getaffinity(0)), len(shards))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
        yield from pool.map(scan_one, shards)


def _scan_shard(folder: Path, shard: Shard) -> tuple[Shard, Arrays]:
    members, damage = tar.scan(folder / shard.name)
    others: Counter[str] = Counter()
    blocks: list[list[int]] = []
    sizes: list[list[int]] = []
    keys: list[bytes] = []
    for key, group in groupby(members, _key_of):
        places = _columns(list(group), shard.name, others, damage)
        if places:
            blocks.append([places[c].offset // BLOCK if c in places else ABSENT for c in COLUMNS])
            sizes.append([places[c].size if c in places else 0 for c in COLUMNS])
            keys.append(key.encode("utf-8", "backslashreplace"))
    done = Shard(
        shard.name, shard.size, shard.mtime_ns, len(keys), sum(map(len, keys)), damage, dict(sorted(others.items()))
    )
    tables = (
        np.array(blocks, np.uint32).reshape(-1, len(COLUMNS)),
        np.array(sizes, np.uint32).reshape(-1, len(COLUMNS)),
    )
    arrays: Arrays = {
        f"{c}_{what}": table[:, i].copy()
        for what, table in zip(("block", "size"), tables, strict=True)
        for i, c in enumerate(COLUMNS)
    }
    arrays["key_bytes"] = np.frombuffer(b"".join(keys), np.uint8)
    arrays["key_end"] = np.cumsum([len(k) for k in keys], dtype=np.uint32)
    arrays["key_hash"] = np.frombuffer(b"".join(hashlib.blake2b(k, digest_size=8).digest() for k in keys), np.uint64)
    return done, arrays


def _key_of(member: Member) -> str:
    """The name up to the first dot after the last slash."""
    folder, slash, base = member.name.rpartition("/")
    return folder + slash + base.partition(".")[0]


def _columns(members: list[Member], shard: str, others: Counter[str], damage: list[str]) -> dict[str, Member]:
    """A sample's members by column; the first where there are several of one."""
    places: dict[str, Member] = {}
    for member in members:
        extension = member.name.rpartition("/")[2].partition(".")[2].lower()
        column = COLUMN_OF.get(extension)
        if column is None:
            others[extension] += 1
        elif member.size >= 2**32:
            damage.append(f"{shard}: {member.name} has {member.size} bytes, too many for a sample")
        elif column in places:
            damage.append(f"{shard}: {member.name} follows {places[column].name}, left out")
        else:
            places[column] = member
    return places


def _state(shard: Shard) -> tuple[str, int, int]:
    return shard.name, shard.size, shard.mtime_ns


def _digest(shards: list[Shard], arrays: Arrays) -> str:
    digest = hashlib.sha256(json.dumps([(s.name, s.size, s.samples) for s in shards]).encode())
    for name in ARRAYS:
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()[:16]


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
