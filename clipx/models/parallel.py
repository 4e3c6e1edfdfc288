"""How processes share a model (train.parallel): each holds all weights (ddp), or a part of them (fsdp).

    ddp    Every process holds all weights, gradients and moments of the optimizer (DistributedDataParallel).
    fsdp   Each of N processes holds 1/N of them (FSDP2). All processes gather the weights of a tower's block before its
           forward and before its backward pass, and free them afterwards.

Both average the gradients over the processes, so they train the same weights, and their checkpoints are the same files.
Batch norms can use the statistics of all processes (train.sync_batchnorm).
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_reduce
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

from clipx import distributed
from clipx.models.towers.blocks import BLOCK

if TYPE_CHECKING:
    from clipx.models.clip import ClipModel

T = TypeVar("T")


class Parallel:
    """The model of a single process."""

    def __init__(self, model: "ClipModel") -> None:
        self.model = model  # holds the weights that are trained, or this process's part of them
        self.whole = model  # the model to evaluate, inside `gathered` only
        self.wrapped: nn.Module = model  # the module to call in a training step

    def no_sync(self) -> AbstractContextManager[None]:
        """Return the context of micro-batches before the last, whose gradients need not be averaged yet."""
        return nullcontext()

    def gathered(self) -> AbstractContextManager[None]:
        """Return a context in which `whole` has all weights. All processes must enter it."""
        return nullcontext()

    def clip_grad_norm_(self, max_norm: float | None) -> Tensor:
        """Scale the gradient to at most this norm (None: leave it), and return the norm [] that it had before."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = self._norm([p.grad for p in parameters if p.grad is not None])
        if max_norm is not None:
            nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        return norm

    def _norm(self, gradients: list[Tensor]) -> Tensor:
        return nn.utils.get_total_norm(gradients)


class Replicated(Parallel):
    """All weights on every process."""

    def __init__(self, model: "ClipModel", averages: nn.Module | None, device: torch.device) -> None:
        super().__init__(model)
        self.replica = DistributedDataParallel(model, gradient_as_bucket_view=True)  # avoids a copy of all gradients
        self.wrapped = self.replica

    def no_sync(self) -> AbstractContextManager[None]:
        return self.replica.no_sync()


class Sharded(Parallel):
    """A part of the weights on each process. Parameters without dimension (temperature, bias) stay on all of them."""

    def __init__(self, model: "ClipModel", averages: nn.Module | None, device: torch.device) -> None:
        """`averages`: the averaged weights, if there are any; they are sharded like the model."""
        super().__init__(model)
        self.whole = deepcopy(model).requires_grad_(False)
        self._free()
        mesh = init_device_mesh(device.type, (distributed.world_size(),))
        for sharded in [model] if averages is None else [model, averages]:
            _shard(sharded, mesh)
        for parameter in model.parameters():
            if parameter.ndim == 0 and parameter.requires_grad:
                parameter.register_hook(_average)  # type: ignore[no-untyped-call]

    @contextmanager
    def gathered(self) -> Iterator[None]:
        with torch.no_grad():
            for own, part in zip(self.whole.parameters(), self.model.parameters(), strict=True):
                own.data = part.full_tensor() if isinstance(part, DTensor) else part.data
            for own_buffer, buffer in zip(self.whole.buffers(), self.model.buffers(), strict=True):
                own_buffer.copy_(buffer)
        yield
        self._free()

    def _norm(self, gradients: list[Tensor]) -> Tensor:
        square = nn.utils.get_total_norm([g.to_local() for g in gradients if isinstance(g, DTensor)]).square()
        distributed.all_reduce_sum(square)
        others = nn.utils.get_total_norm([g for g in gradients if not isinstance(g, DTensor)])  # equal on all processes
        return (square + others.square()).sqrt()

    def _free(self) -> None:
        for parameter in self.whole.parameters():
            parameter.data = parameter.data.new_empty(0)


# train.parallel, for several processes -> function of the model, its averaged weights and the device
PARALLEL: dict[str, Callable[["ClipModel", nn.Module | None, torch.device], Parallel]] = {
    "ddp": Replicated,
    "fsdp": Sharded,
}


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the numbered blocks of the towers, without blocks that contain further ones."""
    named = {name: module for name, module in model.named_modules() if re.search(f"{BLOCK.pattern}$", f"{name}.")}
    return [module for name, module in named.items() if not any(other.startswith(f"{name}.") for other in named)]


def gather_shards(tree: T, copy: Callable[[Tensor], Tensor] | None = None) -> T:
    """Return nested dictionaries or lists with all shards joined, in CPU memory of rank 0; empty on the other ranks.

    All processes must call this. `copy` copies each tensor of rank 0 to CPU memory; without it, tensors that are not
    sharded stay the same.
    """

    def joined(tensor: Tensor) -> Tensor:
        shard = isinstance(tensor, DTensor)
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if distributed.rank() > 0:
            return whole.new_empty(0) if shard else whole
        return copy(whole) if copy else whole.cpu() if shard else whole

    return tree_map_only(Tensor, joined, tree)  # type: ignore[no-any-return]


def shard_like(whole: Tensor, parameter: Tensor) -> Tensor:
    """Return this process's part of `whole` if `parameter` is sharded and has the same shape, else all of `whole`.

    The result has the parameter's strides, because a fused optimizer pairs the values as they lie in memory, and shards
    lie there in another order than whole weights of convolutions (channels_last).
    """
    if whole.shape != parameter.shape:
        return whole
    if not isinstance(parameter, DTensor):
        if whole.stride() == parameter.stride():
            return whole
        return torch.empty_like(parameter, dtype=whole.dtype, device=whole.device).copy_(whole)
    mesh, placements = parameter.device_mesh, parameter.placements
    return distribute_tensor(whole.contiguous().to(parameter.device), mesh, placements, src_data_rank=None)


def _shard(model: nn.Module, mesh: DeviceMesh) -> None:
    model.to(memory_format=torch.contiguous_format)  # fully_shard refuses weights in channels_last
    scalars = {parameter for parameter in model.parameters() if parameter.ndim == 0}
    for module in (*blocks(model), model):
        # a sum that is divided afterwards, because gloo cannot average
        fully_shard(module, mesh=mesh, ignored_params=scalars).set_force_sum_reduction_for_comms(True)


def _average(gradient: Tensor) -> Tensor:
    """Average the gradient of a parameter that is not sharded, so that rounding cannot make the processes differ."""
    total = gradient.clone()
    distributed.all_reduce_sum(total)
    return total / distributed.world_size()


def enable_sync_batchnorm(model: nn.Module, device: torch.device) -> None:
    """Replace the batch norms inside a model, in place, by ones with statistics over all ranks (train.sync_batchnorm).

    The keys of the state dict do not change. timm's conversion is used, because PyTorch's loses the activation inside
    timm's norms. On the CPU, SyncBatchNorm raises an error, and so does DDP for a model that contains it (PyTorch
    2.15): CpuSyncBatchNorm replaces it.
    """
    # imported here, because it takes seconds, and a report, which reads checkpoints, needs no model
    from timm.layers.norm_act import SyncBatchNormAct, convert_sync_batchnorm

    on_cpu: dict[type, type] = {nn.SyncBatchNorm: CpuSyncBatchNorm, SyncBatchNormAct: CpuSyncBatchNormAct}
    convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    if device.type == "cpu":
        for module in model.modules():
            if type(module) in on_cpu:
                module.__class__ = on_cpu[type(module)]


class CpuSyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm with sums over all ranks, forward and backward, in float64: E[x^2] - E[x]^2 cancels in float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [b, C, ...]; returns the same shape and dtype; b may differ between ranks."""
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        axes = [0, *range(2, x.ndim)]
        wide = x.double()
        count = wide.new_tensor([x.numel() // x.shape[1]])
        # each rank's sums affect the loss of all ranks, so the backward pass of this all-reduce sums too
        local = torch.cat([wide.sum(axes), wide.square().sum(axes), count])
        sums: Tensor = all_reduce(local)  # type: ignore[no-untyped-call]
        n = float(sums[-1])
        mean, mean_square = (sums[:-1] / n).chunk(2)
        variance = mean_square - mean.square()
        if self.track_running_stats:
            self._update_running_stats(mean.detach(), variance.detach() * n / (n - 1))
        shape = [1, -1, *(1 for _ in axes[1:])]
        normal = ((wide - mean.view(shape)) / (variance.view(shape) + self.eps).sqrt()).to(x.dtype)
        return normal * self.weight.to(x.dtype).view(shape) + self.bias.to(x.dtype).view(shape)

    def _update_running_stats(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), momentum)
        self.running_var.lerp_(variance.to(self.running_var), momentum)


class CpuSyncBatchNormAct(CpuSyncBatchNorm):
    """CpuSyncBatchNorm followed by the dropout and activation of timm's norms."""

    drop: nn.Module
    act: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        activated: Tensor = self.act(self.drop(super().forward(x)))
        return activated
