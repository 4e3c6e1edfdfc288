"""Preprocessed images and tokens of small data sets, kept in memory for the next model that this process evaluates.

`clipx reproduce` evaluates many runs in one process, and log.evaluate_every evaluates a run at many steps. Decoding
images takes longer than embedding them with a small model.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator

from torch import Tensor

LIMIT = 512 * 2**20  # bytes that a process keeps; larger sets are not kept

_kept: OrderedDict[Hashable, list[Tensor]] = OrderedDict()  # least recently used first


def kept(key: Hashable, batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the batches kept under `key`, if any; otherwise yield from `batches`, and keep these if they are small.

    Equal keys must mean equal batches. Batches are kept only after the caller has taken all of them.
    """
    if key in _kept:
        _kept.move_to_end(key)
        yield from _kept[key]
        return
    new: list[Tensor] = []
    size = 0  # bytes
    for batch in batches:
        size += batch.nbytes
        if size <= LIMIT:
            # copy: a batch in the shared memory of a loader process occupies a file descriptor
            new.append(batch.clone() if batch.is_shared() else batch)  # type: ignore[no-untyped-call]
        else:
            new.clear()
        yield batch
    if size <= LIMIT:
        while _kept and size + sum(map(_bytes, _kept.values())) > LIMIT:
            _kept.popitem(last=False)
        _kept[key] = new


def forget() -> None:
    """Remove all kept batches."""
    _kept.clear()


def _bytes(batches: list[Tensor]) -> int:
    return sum(batch.nbytes for batch in batches)
