"""Parameter groups and the optimizer."""

from collections.abc import Callable

import torch
from torch import nn

from clipx.config import OptimizerConfig, RunConfig
from clipx.errors import UserError
from clipx.tables import lookup

Groups = list[dict[str, object]]


def build(model: nn.Module, config: RunConfig) -> torch.optim.Optimizer:
    """An optimizer with a group for each part of the model, and in it for weights that are decayed and that are not.

    Parts are image, text, their projections and temperature; gains, biases and positions of one dimension are
    not decayed. A group carries its `name` and `lr_factor`; `set_lr` multiplies that with the schedule's value.

    Raises:
        UserError: all parts are frozen, or an unknown optimizer.kind.
    """
    rules = _rules(config)
    groups: dict[str, dict[str, object]] = {}
    members: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        part = max((p for p in rules if name.startswith(p)), key=len)
        lr_factor, weight_decay = rules[part]
        decay = weight_decay if parameter.ndim > 1 else 0.0
        group = f"{part.rstrip('.') or 'other'} {'decay' if parameter.ndim > 1 else 'no_decay'}"
        members.setdefault(group, []).append(parameter)
        groups[group] = {"name": group, "params": members[group], "weight_decay": decay, "lr_factor": lr_factor}
    if not groups:
        raise UserError("nothing is left to train: model.image.frozen, model.text.frozen and a fixed temperature")
    return lookup(KINDS, config.optimizer.kind, "optimizer.kind")(list(groups.values()), config.optimizer)


def _adamw(groups: Groups, config: OptimizerConfig) -> torch.optim.Optimizer:
    beta1, beta2 = config.betas
    return torch.optim.AdamW(groups, lr=config.lr, betas=(beta1, beta2), eps=config.eps, fused=True)


def _sgd(groups: Groups, config: OptimizerConfig) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=config.lr, fused=True)


KINDS: dict[str, Callable[[Groups, OptimizerConfig], torch.optim.Optimizer]] = {"adamw": _adamw, "sgd": _sgd}


def _rules(config: RunConfig) -> dict[str, tuple[float, float]]:
    """Start of a parameter's name -> lr factor and weight decay; the longest that fits counts."""
    model, decay = config.model, config.optimizer.weight_decay
    projection = (model.projection_lr_factor, decay)
    return {
        "": (1.0, decay),
        "image.": (model.image.lr_factor, decay if model.image.weight_decay is None else model.image.weight_decay),
        "text.": (model.text.lr_factor, decay if model.text.weight_decay is None else model.text.weight_decay),
        "image.projection.": projection,
        "text.projection.": projection,
        "temperature.": (config.temperature.lr_factor, 0.0),
    }


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets each group's learning rate to lr times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]
