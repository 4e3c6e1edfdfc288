"""Processes: who am I, and gathering embeddings with their gradient."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


@contextmanager
def group(device: torch.device, patience: float = 1800.0) -> Iterator[None]:
    """Joins the process group that torch.distributed.run set up; nothing to join for a single process.

    After an error the group stays: to take it down NCCL waits for the ranks, which wait for this one.

    Args:
        patience: seconds that a rank waits for the others, who may read data, save or copy meanwhile.
    """
    if "WORLD_SIZE" not in os.environ:
        yield
        return
    # control data are CPU tensors, for which no GPU is waited
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=patience))
    yield
    dist.destroy_process_group()


def rank() -> int:
    """0 for a single process."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def barrier() -> None:
    """Waits for the other processes."""
    if dist.is_initialized():
        dist.barrier()


def all_reduce_sum(values: Tensor) -> None:
    """Adds the ranks' tensors, in place."""
    if world_size() > 1:
        dist.all_reduce(values)


def all_reduce_max(value: float) -> float:
    """The largest of the ranks' numbers."""
    if world_size() == 1:
        return value
    largest = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return float(largest)


def gather_to_rank0(local: Tensor) -> list[Tensor]:
    """Tensors of all ranks, equal in shape, on rank 0; nothing on the others."""
    if world_size() == 1:
        return [local]
    parts = [torch.empty_like(local) for _ in range(world_size())] if rank() == 0 else None
    dist.gather(local, parts)
    return parts or []


def broadcast_object(value: T) -> T:
    """Rank 0's value, on all ranks; any picklable object."""
    if world_size() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def gather_objects(local: T) -> list[T]:
    """Every rank's object, in the order of ranks."""
    if world_size() == 1:
        return [local]
    found: list[Any] = [None] * world_size()
    dist.all_gather_object(found, local)
    return found


def all_gather_sizes(local: int) -> list[int]:
    """The ranks' numbers, in their order: of rows, for `gather`."""
    if world_size() == 1:
        return [local]
    found = [torch.zeros((), dtype=torch.int64) for _ in range(world_size())]
    dist.all_gather(found, torch.tensor(local))
    return [int(size) for size in found]


def gather(local: Tensor, rows: list[int] | None = None) -> Tensor:
    """Concatenates [b_r, ...] of all ranks to [B, ...]; ranks may differ in b_r, `rows` has them where they are known.

    Every rank computes the same loss from the same global batch. The gradient of that loss with respect
    to a rank's own rows is complete on this rank, so backward takes the own slice, without communication;
    it is multiplied by the world size because DDP will average over ranks what should be summed.
    """
    if world_size() == 1:
        return local
    return _Gather.apply(local, rows or all_gather_sizes(len(local)))  # type: ignore[no-any-return]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, rows: list[int]) -> Tensor:
        padded = local.new_zeros((max(rows), *local.shape[1:]))
        padded[: len(local)] = local
        parts = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(parts, padded)
        ctx.start, ctx.end = sum(rows[: rank()]), sum(rows[: rank() + 1])
        return torch.cat([part[:count] for part, count in zip(parts, rows, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.start : ctx.end] * world_size(), None
