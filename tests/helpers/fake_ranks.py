"""One rank of a large group in this process: torch's fake process group, whose collectives are recorded and completed.

The fake group returns only the values of its own rank. Here every rank is given the same pairs, so the values of rank k
are known: a tensor over the global batch is that of this rank, moved by the distance of their parts, and any other
tensor is equal. Results are therefore exact, as if all ranks took part.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clipx.training import setup

Call = tuple[str, tuple[tuple[int, ...], ...], str]  # name, shapes and dtype of the tensors


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists the collectives of this process, those of DDP included, in their order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if function.namespace == "c10d":
            # gather: only rank 0 has outputs, so only the inputs are compared
            tensors = [t for t in tree_leaves(args[1] if "gather_" in str(function) else args) if isinstance(t, Tensor)]
            self.add(str(function), tensors)
        return function(*args, **kwargs or {})

    def add(self, name: str, tensors: list[Tensor]) -> None:
        """Append a call."""
        self.calls.append((name, tuple(tuple(t.shape) for t in tensors), str({t.dtype for t in tensors})))


@contextmanager
def one_of(world: int, rank: int, sample_id: Tensor) -> Iterator[Recorder]:
    """Be this rank of a fake group in the block.

    Args:
        sample_id: int64 [B], of the global batch; the only tensor in which the ranks differ.
    """
    B = len(sample_id)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        with pytest.MonkeyPatch.context() as patch, Recorder() as recorder:
            _complete(patch, world, rank, B, sample_id)
            patch.setattr(setup, "DistributedDataParallel", lambda model: _data_parallel(model, recorder))
            yield recorder
    finally:
        dist.destroy_process_group()


def _complete(patch: pytest.MonkeyPatch, world: int, rank: int, B: int, sample_id: Tensor) -> None:
    """Let the collectives return what a group of ranks with equal pairs returns."""
    all_reduce, all_gather, reduce_scatter = dist.all_reduce, dist.all_gather, dist.reduce_scatter
    size, parts = B // world, torch.split(sample_id, B // world)

    def reduced(values: Tensor, op: Any = dist.ReduceOp.SUM) -> None:
        all_reduce(values, op)
        of_batch = values.dim() > 0 and values.shape[-1] == B
        of_ranks = torch.stack([values.roll((k - rank) * size, -1) if of_batch else values for k in range(world)])
        values.copy_(of_ranks.amax(0) if op == dist.ReduceOp.MAX else of_ranks.sum(0))

    def gathered(outputs: list[Tensor], values: Tensor) -> None:
        all_gather(outputs, values)
        if values.shape == parts[rank].shape and torch.equal(values, parts[rank]):
            for output, part in zip(outputs, parts, strict=True):
                output.copy_(part)

    def scattered(output: Tensor, shards: list[Tensor]) -> None:
        reduce_scatter(output, shards)
        output.copy_(torch.stack(shards).sum(0))

    for name, function in (("all_reduce", reduced), ("all_gather", gathered), ("reduce_scatter", scattered)):
        patch.setattr(dist, name, function)


def _data_parallel(model: nn.Module, recorder: Recorder) -> DistributedDataParallel:
    """Wrap in DDP with a hook that keeps this rank's gradient; DDP's own hook does not accept the fake group's results.

    The ranks' gradients are equal, and so is their average.
    """

    def keep(state: object, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
        recorder.add("bucket", [bucket.buffer()])
        future: Future[Tensor] = Future()
        future.set_result(bucket.buffer())
        return future

    parallel = DistributedDataParallel(model)
    hook: Callable[..., Any] = keep
    parallel.register_comm_hook(None, hook)
    return parallel
