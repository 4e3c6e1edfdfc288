"""Parameter groups and the optimizer."""

import torch
from torch import nn

from clipx.config import RunConfig


def build(model: nn.Module, config: RunConfig) -> torch.optim.AdamW:
    """AdamW with groups decay | no_decay (gains, biases, positions of 1-d) | temperature.

    Each group carries `lr_factor`; `set_lr` multiplies it with the schedule's value.
    """
    decay: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    temperature: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if name.startswith("temperature."):
            temperature.append(parameter)
        else:
            (decay if parameter.ndim > 1 else rest).append(parameter)
    optimizer = config.optimizer
    groups = [
        {"params": decay, "weight_decay": optimizer.weight_decay, "lr_factor": 1.0},
        {"params": rest, "weight_decay": 0.0, "lr_factor": 1.0},
        {"params": temperature, "weight_decay": 0.0, "lr_factor": config.temperature.lr_factor},
    ]
    beta1, beta2 = optimizer.betas
    return torch.optim.AdamW(
        [g for g in groups if g["params"]],
        lr=optimizer.lr,
        betas=(beta1, beta2),
        eps=optimizer.eps,
        fused=True,
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets each group's learning rate to lr times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]
