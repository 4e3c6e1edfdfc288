"""Batch norm with statistics over all ranks (train.sync_batchnorm).

On GPUs, timm converts batch norms to PyTorch's SyncBatchNorm. On the CPU, SyncBatchNorm raises an error, and so does
DDP for a model that contains it (PyTorch 2.15). The CPU version below replaces it in CPU training on several processes.
The tests also use it to show that 1, 2 and 4 processes give the same weights.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from timm.layers.norm_act import SyncBatchNormAct, convert_sync_batchnorm
from torch import Tensor, nn


def enable_sync_batchnorm(model: nn.Module, device: torch.device) -> None:
    """Replace the batch norms inside a model, in place; the keys of its state dict do not change.

    Uses timm's conversion, because PyTorch's loses the activation inside timm's norms.
    """
    convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    if device.type == "cpu":
        for module in model.modules():
            if type(module) in ON_CPU:
                module.__class__ = ON_CPU[type(module)]


class CpuSyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm with sums over all ranks, forward and backward, in float64: E[x^2] - E[x]^2 cancels in float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [b, C, ...]; returns the same shape and dtype; b may differ between ranks."""
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        axes = [0, *range(2, x.ndim)]
        wide = x.double()
        count = wide.new_tensor([x.numel() // x.shape[1]])
        sums: Tensor = _AllReduceSum.apply(torch.cat([wide.sum(axes), wide.square().sum(axes), count]))
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


ON_CPU: dict[type, type] = {nn.SyncBatchNorm: CpuSyncBatchNorm, SyncBatchNormAct: CpuSyncBatchNormAct}


class _AllReduceSum(torch.autograd.Function):
    """Sum over ranks. Each rank's input affects the loss of all ranks, so the backward pass sums too."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        total = local.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _AllReduceSum.forward(ctx, grads[0])
