"""The index of a folder of shards: the location of each sample's members, in arrays that all processes share.

A sample has at most one member per column: image, txt, json and cls. Samples are numbered shard by shard; a sample's
number is its row in the arrays. New shards are appended, so that the numbers in the saved index stay. Only new and
changed shards are scanned. `clipx data index` writes the index into the folder of the shards; otherwise it is in the
cache. A member takes 8 bytes (block and size). Columns that a run does not use are never read from disk.
"""

import hashlib
import json
import multiprocessing
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clipx.data.shards import tar
from clipx.data.shards.tar import BLOCK, CUT, Damage, Member
from clipx.errors import UserError, printable_line
from clipx.utils.files import HIDDEN, cache_home, content_hash, lock, new_folder
from clipx.utils.trust import load_json

COLUMN_OF = {
    "jpg": "image", "jpeg": "image", "png": "image", "webp": "image",
    "txt": "txt", "json": "json", "cls": "cls",
}  # fmt: skip
COLUMNS = ("image", "txt", "json", "cls")
ARRAYS = (*(f"{c}_{part}" for c in COLUMNS for part in ("block", "size")), "key_bytes", "key_end", "key_hash")
ABSENT = 0  # block of a missing member; block 0 is always a header, so no member's data start there
INDEX_FOLDER = "clipx_index"  # folder of the index in the folder of the shards
FORMAT = 5  # to be increased when the saved files change, so that older ones are not read
COMPRESSED = (".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4")  # endings of names
MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zX", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")  # gzip, bzip2, xz, zstd, lz4
MIN_POOL_BYTES = 256 * 2**20  # smallest total size of shards for which several processes scan them

Arrays = dict[str, NDArray[np.generic]]
Extensions = Sequence[tuple[str, str]]


@dataclass
class Shard:
    """A tar file, as stored in shards.json."""

    name: str
    size: int  # bytes
    mtime_ns: int
    samples: int = 0
    key_bytes: int = 0  # total length of the keys
    damage: list[str] = field(default_factory=list)  # one line per problem
    named: list[str] = field(default_factory=list)  # keys of the samples that `damage` names
    others: dict[str, int] = field(default_factory=dict)  # extension -> number of members that are not used


@dataclass
class Index:
    """Shards and arrays of n samples; the arrays are memory-mapped if loaded from a folder.

    `<column>_block` and `<column>_size` are uint32 [n]: a member's data start at byte 512 x block; ABSENT if missing.
    `key_bytes` uint8 concatenates all keys. `key_end` uint32 [n] is the end of each key, counted from its shard's first
    key byte. `key_hash` is uint64 [n].
    """

    shards: list[Shard]
    arrays: Arrays
    digest: str  # hash of shard names, keys, blocks and sizes

    def __post_init__(self) -> None:
        self.starts: NDArray[np.int64] = np.cumsum([0] + [s.samples for s in self.shards])
        self.key_starts: NDArray[np.int64] = np.cumsum([0] + [s.key_bytes for s in self.shards])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def shard_of(self, row: int) -> int:
        """Return the number of the shard that contains a sample."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def key(self, row: int) -> str:
        """Return a sample's key."""
        shard = self.shard_of(row)
        base, end = int(self.key_starts[shard]), self.arrays["key_end"]
        begin = int(end[row - 1]) if row > self.starts[shard] else 0
        return self.arrays["key_bytes"][base + begin : base + int(end[row])].tobytes().decode()

    def where(self, row: int) -> str:
        """Return a sample's location for messages, such as `00003.tar:000123`."""
        return printable_line(f"{self.shards[self.shard_of(row)].name}:{self.key(row)}")

    def damage(self) -> list[str]:
        """Return one line per problem in any shard."""
        return [printable_line(line) for shard in self.shards for line in shard.damage]

    def duplicates(self) -> NDArray[np.int64]:
        """Return the rows of the samples that have the same key as an earlier sample."""
        _, first = np.unique(self.arrays["key_hash"], return_index=True)
        return np.setdiff1d(np.arange(len(self)), first)

    def arrays_of(self, shard: int) -> Arrays:
        """Return a shard's part of each array."""
        rows, keys = slice(*self.starts[shard : shard + 2]), slice(*self.key_starts[shard : shard + 2])
        return {name: array[keys if name == "key_bytes" else rows] for name, array in self.arrays.items()}


def open_index(folder: Path, extensions: Extensions = ()) -> Index:
    """Return the index of the shards of a folder. If none is up to date, build one and save it in the cache.

    `extensions`: pairs (extension, column), such as ("caption", "txt"); such a column has no other extension.

    Raises UserError if there is no folder, no shard in it, or a compressed one.
    """
    shards = [Shard(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in _shard_paths(folder)]
    name = [str(folder.resolve()), "only", *extensions]
    cache = cache_home() / "index" / f"{content_hash(name if extensions else name[0])}-{FORMAT}"
    if (index := _up_to_date(_saved(folder, cache, extensions), shards)) is not None:
        return index
    with lock(str(cache)):  # all processes of a run call this: one builds the index, the others wait
        saved = _saved(folder, cache, extensions)
        if (index := _up_to_date(saved, shards)) is not None:
            return index
        built = build_index(folder, shards, saved[0] if saved else Index([], {}, ""), extensions)
        save(built, cache)
        loaded = load(cache)
    return built if loaded is None else loaded  # None: another machine with this cache is just writing the same index


def _saved(folder: Path, cache: Path, extensions: Extensions) -> list[Index]:
    """Return the index beside the shards, unless `extensions` are given, and the one in the cache, if they exist."""
    paths = [cache] if extensions else [folder / INDEX_FOLDER, cache]
    return [index for path in paths if (index := load(path)) is not None]


def _up_to_date(saved: list[Index], shards: list[Shard]) -> Index | None:
    wanted = {_version(s) for s in shards}
    return next((index for index in saved if {_version(s) for s in index.shards} == wanted), None)


def build_index(folder: Path, shards: list[Shard], base: Index, extensions: Extensions = ()) -> Index:
    """Return the index of `shards`. Scan those that are new or changed, and take the others from `base`.

    The shards of `base` come first, in the same order, then the new shards by name.
    """
    known = {s.name: i for i, s in enumerate(base.shards)}
    ordered = sorted(shards, key=lambda s: (known.get(s.name, len(known)), s.name))
    unchanged = {_version(s) for s in base.shards}
    changed = [s for s in ordered if _version(s) not in unchanged]
    scanned = dict(zip([s.name for s in changed], _scan_all(folder, changed, extensions), strict=True))
    indexed, parts = [], []
    for shard in ordered:
        if shard.name in scanned:
            complete, arrays = scanned.pop(shard.name)
            if shard.name in known:
                complete.damage += _lost(complete, arrays, base, known[shard.name])
        else:
            complete, arrays = base.shards[known[shard.name]], base.arrays_of(known[shard.name])
        indexed.append(complete)
        parts.append(arrays)
    # pop releases each part, so that peak memory is about one copy of the index
    arrays = {name: np.concatenate([part.pop(name) for part in parts]) for name in ARRAYS}
    return Index(indexed, arrays, _digest(indexed, arrays))


def _lost(shard: Shard, arrays: Arrays, base: Index, number: int) -> list[str]:
    """Return one line per sample that a shard has lost since `base` because it is cut."""
    cut = next((line for line in shard.damage if any(mark in line for mark in CUT)), None)
    if cut is None:
        return []
    gone = ~np.isin(base.arrays_of(number)["key_hash"], arrays["key_hash"])
    keys = [base.key(int(base.starts[number]) + row) for row in np.flatnonzero(gone).tolist()]
    # `cut` already names the sample in which the shard ends
    return [f"{shard.name}: {key} is lost, because the shard is cut" for key in keys if f" {key}." not in cut]


def save(index: Index, folder: Path) -> None:
    """Write an index into a folder. The one that it replaces is kept in a hidden folder beside it, until the next time.

    Other processes may have it mapped. On a network drive, those on other machines would fail if it were deleted.
    """
    content = {"format": FORMAT, "digest": index.digest, "shards": [asdict(s) for s in index.shards]}
    with new_folder(folder) as temporary:
        for name, array in index.arrays.items():
            np.save(temporary / f"{name}.npy", array)
        (temporary / "shards.json").write_text(json.dumps(content))
        before = folder.with_name(f".{folder.name}.before")
        shutil.rmtree(before, ignore_errors=True)
        with suppress(FileNotFoundError):
            folder.rename(before)


def load(folder: Path) -> Index | None:
    """Return the index in a folder, memory-mapped; None if it is missing, corrupt or of another format."""
    try:
        content = load_json((folder / "shards.json").read_text())
        if content["format"] != FORMAT:
            return None
        shards = [Shard(**s) for s in content["shards"]]
        arrays: Arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
        index = Index(shards, arrays, str(content["digest"]))
        lengths = {name: int(index.key_starts[-1]) if name == "key_bytes" else len(index) for name in ARRAYS}
    except (OSError, EOFError, ValueError, KeyError, TypeError, OverflowError):  # EOFError: an empty file
        return None
    return index if all(len(arrays[name]) == n for name, n in lengths.items()) else None


def _shard_paths(folder: Path) -> list[Path]:
    """Return the .tar files of a folder, sorted by name. Raises UserError if there is none."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}: give the folder that holds the .tar shards")
    # glob would return nothing for an unreadable folder; scandir raises an error
    entries = sorted((entry for entry in os.scandir(folder) if not entry.name.startswith(".")), key=lambda e: e.name)
    for entry in entries:
        if is_shard(entry.name) and not entry.is_file():  # a pipe would be waited for
            raise UserError(f"{entry.path} is no file")
        if entry.name.lower().endswith(COMPRESSED) or (is_shard(entry.name) and _is_compressed(Path(entry.path))):
            raise UserError(
                f"{entry.path} is compressed, but samples are read from any place of a shard: unpack it, or "
                "move it to another folder"
            )
    names = [entry.name for entry in entries if is_shard(entry.name)]
    folders = [entry for entry in entries if entry.is_dir() and entry.name not in HIDDEN]
    below = next((one.path for one in folders if any(is_shard(path.name) for path in Path(one).iterdir())), None)
    if below or not names:
        also = "also" if names else "does"
        where = f"; {below} {also}: name one folder, or put all shards into one" if below else ""
        if not below and any(entry.name.endswith(".txt") for entry in entries):
            where = "; images with captions beside them (7.jpg, 7.txt) are data=folder, and folder:DIR in datasets="
        raise UserError(f"{folder} holds {'' if names else 'no '}.tar shards{where}")
    return [folder / name for name in names]


def columns_of(extensions: Extensions) -> dict[str, str]:
    """Return extension -> column: `extensions`, and the usual ones of the other columns."""
    named = dict(extensions)
    return {extension: column for extension, column in COLUMN_OF.items() if column not in named.values()} | named


def is_shard(name: str) -> bool:
    """Return True for the name of a tar file that is not hidden."""
    return name.lower().endswith(".tar") and name[0] != "."


def _is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4).startswith(MAGIC)


def _scan_all(folder: Path, shards: list[Shard], extensions: Extensions) -> Iterator[tuple[Shard, Arrays]]:
    scan_one = partial(_scan_shard, folder, columns_of(extensions))
    if len(shards) < 2 or sum(s.size for s in shards) < MIN_POOL_BYTES:
        yield from map(scan_one, shards)
        return
    workers = min(len(os.sched_getaffinity(0)), len(shards))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
        yield from pool.map(scan_one, shards)


def _scan_shard(folder: Path, column_of: dict[str, str], shard: Shard) -> tuple[Shard, Arrays]:
    members, damage = tar.scan(folder / shard.name)
    others: Counter[str] = Counter()
    unused: dict[str, list[str]] = {}  # column -> a line for each further member
    locations: list[list[tuple[int, int]]] = []  # sample, column -> block, size
    keys: list[bytes] = []
    groups: dict[str, list[Member]] = {}  # a sample's members may lie apart
    for member in members:
        if not member.name.rpartition("/")[2].startswith("."):  # macOS writes a hidden ._NAME beside each NAME
            groups.setdefault(key_of(member.name), []).append(member)
    twice = [key for key, group in groups.items() if len({m.name for m in group}) < len(group)]
    if twice:
        line = f"{shard.name}: {len(twice)} samples are stored more than once, such as {twice[0]}; the first is used"
        damage.append(("", line))
    for key, group in groups.items():
        first_of_name: dict[str, Member] = {}
        for member in group:
            first_of_name.setdefault(member.name, member)
        by_column = _by_column([*first_of_name.values()], column_of, shard.name, others, unused, damage)
        if by_column:
            found = [by_column.get(column) for column in COLUMNS]
            locations.append([(m.offset // BLOCK, m.size) if m else (ABSENT, 0) for m in found])
            keys.append(_encoded(key))
    for lines in unused.values():  # one line for all of a column, because no sample is lost
        damage.append(("", lines[0] + (f"; the same for {len(lines) - 1} other members" if len(lines) > 1 else "")))
    table = np.array(locations, np.uint32).reshape(-1, len(COLUMNS), 2)
    arrays: Arrays = {
        f"{column}_{name}": table[:, i, j].copy()
        for i, column in enumerate(COLUMNS)
        for j, name in enumerate(("block", "size"))
    }
    arrays["key_bytes"] = np.frombuffer(b"".join(keys), np.uint8)
    arrays["key_end"] = np.cumsum([len(k) for k in keys], dtype=np.uint32)
    arrays["key_hash"] = np.frombuffer(b"".join(hashlib.blake2b(k, digest_size=8).digest() for k in keys), np.uint64)
    key_bytes = sum(map(len, keys))
    named = sorted({key_of(name) for name, _ in damage} & groups.keys())
    # the sample in which the shard is cut does not count as whole
    whole = len(keys) - sum(_encoded(key_of(name)) in keys for name, line in damage if CUT[0] in line)
    lines = [f"{line} after {whole} samples" if any(mark in line for mark in CUT) else line for _, line in damage]
    counts = dict(sorted(others.items()))
    return replace(shard, samples=len(keys), key_bytes=key_bytes, damage=lines, named=named, others=counts), arrays


def key_of(name: str) -> str:
    """Return a member's name up to the first dot after the last slash."""
    folder, slash, base = name.rpartition("/")
    return folder + slash + base.partition(".")[0]


def _encoded(key: str) -> bytes:
    return key.encode("utf-8", "backslashreplace")


def _by_column(
    members: list[Member],
    column_of: dict[str, str],
    shard: str,
    others: Counter[str],
    unused: dict[str, list[str]],
    damage: list[Damage],
) -> dict[str, Member]:
    """Return column -> member of a sample: the first of several. `unused` gets a line for each further one."""
    by_column: dict[str, Member] = {}
    longer: dict[str, str] = {}  # images that are not used -> their extension, such as seg.png
    for member in members:
        where, extension = f"{shard}: {member.name}", member.name.rpartition("/")[2].partition(".")[2].lower()
        column = column_of.get(extension)
        if column is None:
            others[extension] += 1
            if column_of.get(extension.rpartition(".")[2]) == "image":
                longer[member.name] = extension
        elif member.size >= 2**32:
            line = f"{where} has {member.size} bytes, but a member must be smaller than 4 GiB"
            damage.append((member.name, line))
        elif column in by_column:
            unused.setdefault(column, []).append(f"{where} is ignored, {by_column[column].name} is used")
        else:
            by_column[column] = member
    names = [member.name.lower() for member in members]
    for name, extension in longer.items():
        stem = f"{name.lower().rpartition('.')[0]}."
        alone = len(longer) == 1 and "image" not in by_column
        # an image with a text of its own is a lost sample, and so is a sample's only image; .seg.png is an extra
        if alone or sum(other.startswith(stem) for other in names) > 1:
            line = f"{shard}: {name} is left out: its extension is {extension}: it begins at the first dot"
            damage.append((name, line))
    return by_column


def _version(shard: Shard) -> tuple[str, int, int]:
    return shard.name, shard.size, shard.mtime_ns


def _digest(shards: list[Shard], arrays: Arrays) -> str:
    digest = hashlib.sha256(json.dumps([(s.name, s.size, s.samples) for s in shards]).encode())
    for name in ARRAYS:
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()[:16]
