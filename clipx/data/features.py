"""Features of frozen towers, embedded once and kept on disk (data.features=true).

The features of one tower for one set of items (images or texts) are in CLIPX_CACHE/frozen/TOWER/SET:

    items.npy   uint64 [n], hash of the content of each item; SET is a hash of them
    starts.npy  int64 [n + 1], first row of each item, where items have different numbers of tokens
    rows.npy    float32 or float16 [n, *shape], or all tokens one after the other: memory-mapped by all processes
    state       uint8 [n]: 0 missing, 1 embedded, 2 unusable, for example an image that cannot be decoded

Items that another set of the same tower already has are copied from it. Processes share the work: each locks the
`state` of a block of items, and the system releases the lock if the process dies. A state is written after its rows are
on the disk, so that a kill loses at most one block of each process.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipx import distributed
from clipx.errors import UserError
from clipx.utils.files import cache_home, content_hash, lock, new_folder
from clipx.utils.terminal import ProgressBar

BLOCK = 128  # items that a tower embeds together
STATISTICS = 1_000_000  # mean and deviation are those of all items, or of at least so many
POLL = 0.1  # seconds between looks at the blocks of other processes
MISSING, EMBEDDED, UNUSABLE = 0, 1, 2  # states
ITEMS, STARTS, ROWS, STATE = "items.npy", "starts.npy", "rows.npy", "state"
Array = NDArray[Any]


class Tower(Protocol):
    """A frozen tower, clipx.models.frozen."""

    digest: str  # of weights and preprocessing
    versions: str  # of the libraries that compute the features
    shape: tuple[int, ...]  # (width,), (K, width) for tokens, or (C, H, W)
    precision: str  # of the stored features: float32 | float16
    inputs: Any  # Pixels of an image tower, Tokens of a text tower
    padding: int | None  # token id of a text tower

    @property
    def name(self) -> str: ...
    def __call__(self, batch: Tensor, device: torch.device) -> Tensor: ...


@dataclass
class Items:
    """Images or texts to embed."""

    what: str  # for messages: "6,000 images"
    hashes: Array  # uint64 [n], of their contents
    inputs: Callable[[Sequence[int]], list[Tensor | None]]  # item numbers -> inputs of the tower; None: unusable
    lengths: Callable[[], Array] | None = None  # returns int64 [n], tokens of each item; None: all have the same


@dataclass
class Features:
    """The features of a set, n items in the order of `Items`."""

    rows: Any  # Array [n, *shape], or [tokens, width] if `starts` is given; or another object that is indexed like it
    state: Array  # uint8 [n]
    shape: tuple[int, ...]
    starts: Array | None = None  # int64 [n + 1], first row of each item

    def __len__(self) -> int:
        return len(self.state)

    def take(self, numbers: Array) -> Tensor:
        """Return float32 [b, *shape] of b items; after an item's last token are zeros."""
        if self.starts is None:
            return torch.from_numpy(self.rows[numbers]).float()
        taken = torch.zeros(len(numbers), *self.shape)
        for row, number in zip(taken, numbers.tolist(), strict=True):
            first, end = self.starts[number : number + 2].tolist()
            row[: end - first] = torch.from_numpy(np.array(self.rows[first:end]))
        return taken

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation over all items (and tokens), float32 [width] each.

        Of many items, fewer than 2 x STATISTICS are read, in evenly spaced blocks.

        Raises UserError: a value is not finite, which would make the mean useless.
        """
        width = self.shape[-1]
        total, squares, count = np.zeros(width), np.zeros(width), 0
        for first in range(0, len(self), BLOCK * max(1, len(self) // STATISTICS)):
            numbers = first + np.flatnonzero(self.state[first : first + BLOCK] == EMBEDDED)
            taken = self.take(numbers)
            if not (finite := taken.isfinite().flatten(1).all(dim=1)).all():
                raise UserError(f"vector {numbers[~finite.numpy()][0]} has a value that is not finite")
            rows = taken.reshape(-1, width).double().numpy()
            rows = rows[rows.any(axis=1)] if self.starts is not None else rows
            total, squares, count = total + rows.sum(0), squares + (rows**2).sum(0), count + len(rows)
        mean = total / max(count, 1)
        deviation = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0))
        deviation[deviation < 1e-6 * deviation.max(initial=1e-6)] = 1  # a feature that never changes becomes 0
        return torch.from_numpy(mean).float(), torch.from_numpy(deviation).float()


def content_of(data: bytes) -> int:
    """Return the hash of an item's content."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def open_features(tower: Tower, items: Items, device: torch.device, variant: str = "") -> Features:
    """Return the features of a set; embed those that are missing, together with other processes that do the same.

    `variant`: what else the outputs depend on, such as augmentation.

    Raises UserError: the features do not fit on the disk, or the disk is full.
    """
    parent = cache_home() / "frozen" / content_hash([tower.digest, tower.versions, tower.precision, variant])
    folder = parent / hashlib.sha256(items.hashes.tobytes()).hexdigest()[:16]
    try:
        with lock(f"features {folder}"):
            if not folder.is_dir():
                _create(folder, tower, items, np.dtype(tower.precision))
        _embed_missing(folder, tower, items, device)
    except OSError as error:
        kept = "embedded blocks are kept; run the same command again to go on"
        raise UserError(f"data.features=true: {error.filename or folder}: {error.strerror}; {kept}") from error
    return _open(folder, tower.shape)


def _open(folder: Path, shape: tuple[int, ...]) -> Features:
    starts = np.load(folder / STARTS) if (folder / STARTS).is_file() else None
    return Features(np.load(folder / ROWS, mmap_mode="r"), np.memmap(folder / STATE, np.uint8, "r"), shape, starts)


def _create(folder: Path, tower: Tower, items: Items, dtype: np.dtype[Any]) -> None:
    """Write the files of a new set. Copy the rows that other sets of the tower have; reserve space for the others."""
    n = len(items.hashes)
    starts = None if items.lengths is None else np.concatenate([[0], np.cumsum(items.lengths())])
    shape = (n, *tower.shape) if starts is None else (int(starts[-1]), *tower.shape[1:])
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free
    size_of_set = f"features of {items.what} by {tower.name}: {size / 2**20:,.0f} MiB in {folder.parent}"
    if size > free:
        raise UserError(
            f"data.features=true: {size_of_set}, where only {free / 2**20:,.0f} MiB are free; the environment variable "
            "CLIPX_CACHE names another folder, data.feature_precision=float16 takes half of it"
        )
    if distributed.rank() == 0:
        print(size_of_set, flush=True)
    with new_folder(folder) as temporary:
        np.save(temporary / ITEMS, items.hashes)
        if starts is not None:
            np.save(temporary / STARTS, starts)
        rows = np.lib.format.open_memmap(temporary / ROWS, "w+", dtype, shape)
        with (temporary / ROWS).open("r+b") as file:  # reserve the space: a full disk would kill a process that maps it
            os.posix_fallocate(file.fileno(), 0, rows.offset + size)
        state = np.memmap(temporary / STATE, np.uint8, "w+", shape=(n,))
        new = Features(rows, state, tower.shape, starts)
        for other in folder.parent.glob("[!.]*"):
            try:
                old, hashes = _open(other, tower.shape), np.load(other / ITEMS)
            except (OSError, ValueError, EOFError):  # no set, or a damaged one: its items are embedded again
                continue
            _copy(old, hashes, new, items)
        rows.flush()
        state.flush()


def _copy(old: Features, hashes: Array, new: Features, items: Items) -> None:
    """Copy the rows of the items that another set has."""
    _, ours, theirs = np.intersect1d(items.hashes, hashes, return_indices=True)
    found = (old.state[theirs] == EMBEDDED) & (new.state[ours] == MISSING)
    ours, theirs = ours[found], theirs[found]
    for first in range(0, len(ours), BLOCK):
        here, there = ours[first : first + BLOCK], theirs[first : first + BLOCK]
        if new.starts is None or old.starts is None:  # both: the tower decides
            new.rows[here] = old.rows[there]
        else:
            for i, j in zip(here.tolist(), there.tolist(), strict=True):
                new.rows[new.starts[i] : new.starts[i + 1]] = old.rows[old.starts[j] : old.starts[j + 1]]
    new.state[ours] = EMBEDDED


def _embed_missing(folder: Path, tower: Tower, items: Items, device: torch.device) -> None:
    """Embed the blocks that no other process has locked, until all are embedded."""
    features, n = _open(folder, tower.shape), len(items.hashes)
    blocks = [range(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK)]
    done = int(np.count_nonzero(features.state))
    if done == n:
        return
    bar = ProgressBar(active=distributed.rank() == 0)
    with (folder / STATE).open("r+b") as state, (folder / ROWS).open("r+b") as rows, bar as progress:
        progress.start(f"{tower.name} embeds {items.what}", n, done)
        while blocks:
            for block in list(blocks):
                if not _lock(state.fileno(), block):
                    continue
                states = os.pread(state.fileno(), len(block), block.start)  # not from the map, which NFS caches
                numbers = [number for number, found in zip(block, states, strict=True) if found == MISSING]
                if numbers:
                    _embed(features, tower, items, numbers, (rows.fileno(), state.fileno()), device)
                    progress.advance(len(numbers))
                fcntl.lockf(state, fcntl.LOCK_UN, len(block), block.start)
                blocks.remove(block)
            if blocks:  # other processes embed them
                time.sleep(POLL)


def _lock(file: int, block: range) -> bool:
    """Lock the states of a block for this process; return False if another process has them."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, len(block), block.start)
    except (BlockingIOError, PermissionError):  # systems differ
        return False
    return True


def _embed(
    features: Features, tower: Tower, items: Items, numbers: list[int], files: tuple[int, int], device: torch.device
) -> None:
    """Embed some items of a block; write their rows, and then their states."""
    inputs = items.inputs(numbers)
    good = [one for one in inputs if one is not None]
    outputs = iter(tower(torch.stack(good), device).numpy()) if good else iter(())
    array: Any = features.rows
    row_size = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    rows, state = files
    for number, one in zip(numbers, inputs, strict=True):
        first = number if features.starts is None else int(features.starts[number])
        if one is not None:
            output = next(outputs).astype(array.dtype)
            kept = output if features.starts is None else output[: int(features.starts[number + 1]) - first]
            _write(rows, kept.tobytes(), array.offset + first * row_size)
    os.fsync(rows)
    for number, one in zip(numbers, inputs, strict=True):
        _write(state, bytes([UNUSABLE if one is None else EMBEDDED]), number)
    os.fsync(state)


def _write(file: int, data: bytes, offset: int) -> None:
    """Write all bytes at an offset; the system may write fewer at a time."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
