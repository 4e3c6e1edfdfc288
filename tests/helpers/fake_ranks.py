"""Act as one rank of a large group in a single process: torch's fake process group with patched collectives.

The collectives of the fake group return values of this rank only. Here all ranks have the same pairs, so the values of
another rank k follow from those of this rank r: a tensor with a value per sample of the global batch is shifted by
(k - r) B / world places, and any other tensor is the same. From these values, the patched collectives compute the
results of a real group.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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

from clipx import distributed
from clipx.models import parallel
from clipx.types import Part

Call = tuple[str, tuple[tuple[int, ...], ...], str]  # name, shapes of the tensors, set of their dtypes


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the collectives of this process in order, including those of DDP."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if function.namespace == "c10d":
            # record only the inputs of a gather: only rank 0 has outputs, and the records of all ranks must be equal
            tensors = [t for t in tree_leaves(args[1] if "gather_" in str(function) else args) if isinstance(t, Tensor)]
            self.add(str(function), tensors)
        return function(*args, **kwargs or {})

    def add(self, name: str, tensors: list[Tensor]) -> None:
        self.calls.append((name, tuple(tuple(t.shape) for t in tensors), str({t.dtype for t in tensors})))


@contextmanager
def fake_rank(world: int, rank: int, sample_id: Tensor) -> Iterator[Recorder]:
    """Make this process rank `rank` of a fake group of `world` ranks inside the `with` block.

    Args:
        sample_id: int64 [B], ids of the global batch. The pairs of the ranks must differ only in their ids.
    """
    B = len(sample_id)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        with pytest.MonkeyPatch.context() as patch, Recorder() as recorder:
            _complete(patch, world, rank, B, sample_id)
            patch.setattr(parallel, "DistributedDataParallel", partial(_data_parallel, recorder))
            yield recorder
    finally:
        dist.destroy_process_group()


def _complete(patch: pytest.MonkeyPatch, world: int, rank: int, B: int, sample_id: Tensor) -> None:
    """Patch the collectives to return what a group of ranks with the same pairs would return."""
    all_reduce, all_gather, reduce_scatter = dist.all_reduce, dist.all_gather, dist.reduce_scatter
    plain = distributed._OwnPart.reduce_scatter_
    size, parts = B // world, torch.split(sample_id, B // world)
    totals: list[Tensor] = []  # that follow the rows in the next reduce-scatter

    def of_ranks(values: Tensor) -> Tensor:
        over_batch = values.dim() > 0 and values.shape[-1] == B
        return torch.stack([values.roll((k - rank) * size, -1) if over_batch else values for k in range(world)])

    def complete_all_reduce(values: Tensor, op: Any = dist.ReduceOp.SUM, group: None = None) -> None:
        all_reduce(values, op)
        values.copy_(of_ranks(values).amax(0) if op == dist.ReduceOp.MAX else of_ranks(values).sum(0))

    def complete_all_gather(outputs: list[Tensor], values: Tensor) -> None:
        all_gather(outputs, values)
        has_ids = values.dim() == 2 and len(values) > 1 and torch.equal(values[1], parts[rank])
        for output, found, part in zip(outputs, of_ranks(values), parts, strict=True):
            output.copy_(found)
            if has_ids:
                output[1].copy_(part)

    def complete_reduce_scatter(output: Tensor, shards: list[Tensor]) -> None:
        reduce_scatter(output, shards)
        output.copy_(torch.stack(shards).sum(0))
        if totals:
            sums = torch.cat([of_ranks(total).sum(0).flatten() for total in totals])
            output[-len(sums) :] = sums

    def with_totals(part: Part, values: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        totals[:] = given
        return plain(part, values, *given)  # type: ignore[arg-type]

    patch.setattr(distributed._OwnPart, "reduce_scatter_", with_totals)
    for function in (complete_all_reduce, complete_all_gather, complete_reduce_scatter):
        patch.setattr(dist, function.__name__.removeprefix("complete_"), function)


def _data_parallel(recorder: Recorder, model: nn.Module, gradient_as_bucket_view: bool) -> DistributedDataParallel:
    """Wrap in DDP with a hook that keeps this rank's gradient. All ranks have the same gradient, so it is the average.

    The hook is needed because DDP's own all-reduce does not accept the results of the fake group.
    """

    def keep(state: object, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
        recorder.add("bucket", [bucket.buffer()])
        future: Future[Tensor] = Future()
        future.set_result(bucket.buffer())
        return future

    replica = DistributedDataParallel(model, gradient_as_bucket_view=gradient_as_bucket_view)
    hook: Callable[..., Any] = keep
    replica.register_comm_hook(None, hook)
    return replica
