"""Parameter groups and the optimizer."""

from collections.abc import Callable

import torch
from torch import nn

from clipx.config.schema import OptimizerConfig, RunConfig
from clipx.errors import UserError
from clipx.training.layers import BLOCK, depths
from clipx.utils.registry import lookup

Groups = list[dict[str, object]]


def build_optimizer(model: nn.Module, config: RunConfig) -> torch.optim.Optimizer:
    """An optimizer with a group for each part of the model, and in it for weights that are decayed and that are not.

    Parts are image, text, their projections and temperature; gains, biases and other one-dimensional parameters are
    not decayed; with layer_decay the layers of a tower are parts too. A group carries its `name` and `lr_factor`;
    `set_lr` multiplies that with the schedule's value.

    Raises:
        UserError: all parts are frozen, an unknown optimizer.kind, or layer_decay for a tower without known layers.
    """
    rules, layers = _rules(config), _layers(model, config)
    groups: dict[str, dict[str, object]] = {}
    members: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        part = max((p for p in rules if name.startswith(p)), key=len)
        (lr_factor, weight_decay), (layer, of_layer) = rules[part], layers.get(name, ("", 1.0))
        decay = weight_decay if parameter.ndim > 1 else 0.0
        group = f"{part.rstrip('.') or 'other'}{layer} {'decay' if parameter.ndim > 1 else 'no_decay'}"
        members.setdefault(group, []).append(parameter)
        factor = lr_factor * of_layer
        groups[group] = {"name": group, "params": members[group], "weight_decay": decay, "lr_factor": factor}
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


def _layers(model: nn.Module, config: RunConfig) -> dict[str, tuple[str, float]]:
    """Parameter's name -> its layer and the factor of that; of towers whose layers differ, without new projections."""
    found: dict[str, tuple[str, float]] = {}
    for key, tower in (("image.", config.model.image), ("text.", config.model.text)):
        if tower.layer_decay == 1:
            continue
        ours = [n for n, _ in model.named_parameters() if n.startswith(key) and not n.startswith(f"{key}projection.")]
        depth = depths(ours)
        if not any(BLOCK.search(name) for name in ours):
            raise UserError(
                f"model.{key}layer_decay={tower.layer_decay}: no numbered layers are found in {tower.name}; allowed: 1"
            )
        top = max(depth.values())
        found |= {name: (f" layer {d}", tower.layer_decay ** (top - d)) for name, d in depth.items()}
    return found


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets each group's learning rate to lr times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]
