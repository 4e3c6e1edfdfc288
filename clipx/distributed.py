"""Process group: rank, world size, collectives on small values and Python objects, gather, parts of the objective.

Gradients over processes. The objective's inputs (gathered embeddings, scale, bias) and its value are equal on all
processes. A global batch has B pairs; a process has b of them. Each process computes only its part of the objective, a
[b, B] block of the B x B similarities, so its gradient is complete for its images, but incomplete for texts, scale and
bias. All terms therefore follow a rule:

    After the objective's backward pass, a process holds the complete gradient of its own rows of image and text, and of
    scale and bias.

Terms follow the rule by using `Part`. In the forward pass, `sum` adds the values of all parts; its own backward pass is
the identity, because every process computes the loss from the sum. In the backward pass of a term, `reduce_scatter_`
sums the gradient of the gathered texts, and `sum` the gradients of scale and bias. A term that ignores the part and
computes the whole loss follows the rule as well.

DDP then averages the gradients of the parameters over the processes. The gradients of scale and bias are equal on all
processes, so their average is correct. The gradients from different rows must be summed, so the backward pass of
`gather` multiplies them by the world size.

torch.distributed.nn.all_gather is not used: its backward pass communicates, although every rank already has the
gradient of its own rows, and it needs the same number of rows on every rank.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from clipx.errors import Fault, UserError, one_line
from clipx.types import ALL_ROWS, Part

T = TypeVar("T")
LAUNCHER = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")  # environment variables that torchrun sets
NAME_SECONDS = 60.0  # longest wait for the name in MASTER_ADDR: on Kubernetes it may appear after the job has started


@contextmanager
def group(device: torch.device, timeout: float = 1800.0) -> Iterator[None]:
    """Join the process group that torch.distributed.run set up; do nothing for a single process.

    After an error the group is not destroyed: NCCL would wait for the other ranks, which wait for this one.

    `timeout`: seconds that a rank waits for the others, which may be reading data, saving or uploading.

    Raises UserError: a variable of the launcher is missing or wrong. Raises Fault: the ranks cannot connect.
    """
    if "WORLD_SIZE" not in os.environ:
        yield
        return
    # small values (sizes, flags, messages) stay on the CPU, so that they never wait for a GPU
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        _wait_for_name(os.environ.get("MASTER_ADDR", "localhost"))  # torch would wait for the whole timeout
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    except (ValueError, RuntimeError, socket.gaierror) as error:  # RuntimeError: also torch's errors of the network
        given = " ".join(f"{name}={os.environ.get(name)}" for name in LAUNCHER)
        kind = UserError if isinstance(error, ValueError) else Fault
        advice = "; unset WORLD_SIZE, and use train.processes=N" if "None" in given else ""
        raise kind(f"the processes cannot connect ({given}): {one_line(error)}{advice}") from error
    yield
    dist.barrier()  # lets gloo's threads release the last tensors: doing so while the interpreter exits would abort
    dist.destroy_process_group()


def _wait_for_name(host: str) -> None:
    """Wait until the name of the host has an address. Raises gaierror if it has none after NAME_SECONDS."""
    end = time.monotonic() + NAME_SECONDS
    while True:
        try:
            socket.getaddrinfo(host, None)
        except socket.gaierror:
            if time.monotonic() > end:
                raise
            time.sleep(1)
        else:
            return


def rank() -> int:
    """Return the rank of this process; 0 for a single process."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def barrier() -> None:
    """Wait for the other processes."""
    if dist.is_initialized():
        dist.barrier()


def all_reduce_sum(values: Tensor) -> None:
    """Sum the ranks' tensors in place."""
    if world_size() > 1:
        dist.all_reduce(values)


def max_over_ranks(*values: float) -> list[float]:
    """Return the maximum over the ranks of each number."""
    largest = torch.tensor(values, dtype=torch.float64)
    max_over_ranks_(largest)
    return largest.tolist()


def max_over_ranks_(values: Tensor) -> None:
    """Replace the values by the elementwise maximum of the ranks' tensors."""
    if world_size() > 1:
        dist.all_reduce(values, dist.ReduceOp.MAX)


def gather_to_rank0(local: Tensor) -> list[Tensor]:
    """Return the tensors of all ranks on rank 0, [] on the other ranks. All tensors have the same shape."""
    if world_size() == 1:
        return [local]
    gathered = [torch.empty_like(local) for _ in range(world_size())] if rank() == 0 else None
    dist.gather(local, gathered)
    return gathered or []


def broadcast_object(value: T) -> T:
    """Return rank 0's value, any picklable object, on all ranks."""
    if world_size() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def gather_objects(local: T) -> list[T]:
    """Return every rank's object, by rank, on all ranks."""
    if world_size() == 1:
        return [local]
    gathered: list[Any] = [None] * world_size()
    dist.all_gather_object(gathered, local)
    return gathered


def gather_on_host(columns: list[Tensor], most: int) -> tuple[list[int], list[Tensor]]:
    """Concatenate the int64 columns [b_r] of all ranks r, in CPU memory, to [B]. Return the list of b_r, then these.

    One collective. `most`: a bound on b_r, the same on all ranks.
    """
    own = len(columns[0])
    if world_size() == 1:
        return [own], columns
    assert own <= most, f"{own} rows, at most {most} were expected"
    padded = torch.zeros(1 + len(columns), most, dtype=torch.int64)
    padded[0], padded[1:, :own] = own, torch.stack(columns)
    gathered = [torch.empty_like(padded) for _ in range(world_size())]
    dist.all_gather(gathered, padded)
    sizes = [int(shard[0, 0]) for shard in gathered]
    whole = torch.cat([shard[1:, :size] for shard, size in zip(gathered, sizes, strict=True)], dim=1)
    return sizes, list(whole)


def gather(local: Tensor, sizes: list[int] | None = None) -> Tensor:
    """Concatenate [b_r, ...] of all ranks r to [B, ...], with gradient.

    `sizes` lists b_r of every rank; if None, the ranks exchange them. The backward pass needs no communication: it
    takes this rank's rows of the gradient and multiplies them by the world size, as the module's docstring explains.
    """
    if world_size() == 1:
        return local
    return _Gather.apply(local, sizes or gather_objects(len(local)))  # type: ignore[no-any-return]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, sizes: list[int]) -> Tensor:
        padded = local.new_zeros((max(sizes), *local.shape[1:]))
        padded[: len(local)] = local
        gathered = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(gathered, padded)
        ctx.start, ctx.end = sum(sizes[: rank()]), sum(sizes[: rank() + 1])
        return torch.cat([shard[:size] for shard, size in zip(gathered, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.start : ctx.end] * world_size(), None


def part(sizes: list[int]) -> Part:
    """Return the part of the objective that this rank computes: its own rows of what `gather` returns.

    `sizes` lists the number of rows of every rank.
    """
    return ALL_ROWS if world_size() == 1 else _OwnPart(sizes)


class _OwnPart(Part):
    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        start = sum(sizes[: rank()])
        self.rows = slice(start, start + sizes[rank()])

    def sum(self, values: Tensor) -> Tensor:
        return _Sum.apply(values)  # type: ignore[no-any-return]

    def logsumexp(self, values: Tensor) -> Tensor:
        gathered = [torch.empty_like(values) for _ in self.sizes]
        dist.all_gather(gathered, values.detach().contiguous())
        return torch.stack(gathered).logsumexp(dim=0)

    def reduce_scatter_(self, values: Tensor, *totals: Tensor) -> tuple[Tensor, ...]:
        # One collective for all: a process's shard has its rows, padded to the longest shard because gloo needs equal
        # shapes, then `totals`.
        width = values.shape[1:].numel()
        with_totals = max(self.sizes) * width
        shards = values.new_zeros(len(self.sizes), with_totals + sum(total.numel() for total in totals))
        for shard, rows in zip(shards, torch.split(values, self.sizes), strict=True):
            shard[: rows.numel()] = rows.flatten()
        if totals:
            shards[:, with_totals:] = torch.cat([total.flatten() for total in totals])
        own = torch.empty_like(shards[0])
        dist.reduce_scatter(own, list(shards))
        values[self.rows] = own[: self.sizes[rank()] * width].view_as(values[self.rows])
        sums = torch.split(own[with_totals:], [total.numel() for total in totals]) if totals else ()
        return tuple(summed.view_as(total) for summed, total in zip(sums, totals, strict=True))

    def select(self, mask: Tensor) -> Part:
        return _OwnPart(torch.stack([rows.sum() for rows in torch.split(mask, self.sizes)]).tolist())


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]
