"""Batch normalisation whose statistics are of the batches of all ranks together (train.sync_batchnorm)."""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from timm.layers.norm_act import SyncBatchNormAct, convert_sync_batchnorm
from torch import Tensor, nn


def enable_sync_batchnorm(model: nn.Module, device: torch.device) -> None:
    """Replaces the batch norms inside a model; names in its state dict stay.

    timm's conversion, not PyTorch's: that one loses the activation of timm's norms. PyTorch's SyncBatchNorm
    refuses tensors on the CPU, and DDP the class itself there (as of 2.15), so the sums below take its place.
    """
    convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    if device.type == "cpu":
        for module in model.modules():
            if type(module) in ON_CPU:
                module.__class__ = ON_CPU[type(module)]


class OnCpu(nn.modules.batchnorm._BatchNorm):
    """With sums over all ranks, forward and backward; in float64, as a variance of float32 sums cancels."""

    def forward(self, x: Tensor) -> Tensor:
        """[b, C, ...], ranks may differ in b; the same shape and dtype come out."""
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        axes = [0, *range(2, x.ndim)]
        wide = x.double()
        count = wide.new_tensor([x.numel() // x.shape[1]])
        sums: Tensor = _Sum.apply(torch.cat([wide.sum(axes), wide.square().sum(axes), count]))
        n = float(sums[-1])
        mean, of_squares = (sums[:-1] / n).chunk(2)
        variance = of_squares - mean.square()
        if self.track_running_stats:
            self._track(mean.detach(), variance.detach() * n / (n - 1))
        shape = [1, -1, *(1 for _ in axes[1:])]
        normal = ((wide - mean.view(shape)) / (variance.view(shape) + self.eps).sqrt()).to(x.dtype)
        return normal * self.weight.to(x.dtype).view(shape) + self.bias.to(x.dtype).view(shape)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        new = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), new)
        self.running_var.lerp_(variance.to(self.running_var), new)


class OnCpuAct(OnCpu):
    """The same with what timm's norms hold as well."""

    drop: nn.Module
    act: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Then dropout and activation."""
        activated: Tensor = self.act(self.drop(super().forward(x)))
        return activated


ON_CPU: dict[type, type] = {nn.SyncBatchNorm: OnCpu, SyncBatchNormAct: OnCpuAct}


class _Sum(torch.autograd.Function):
    """The sum over ranks: each rank's part acts on the loss through all ranks, so backward sums as well."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        whole = part.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        whole = gradients[0].clone()
        dist.all_reduce(whole)
        return whole
