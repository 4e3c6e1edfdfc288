"""Optimizers with layer-wise learning-rate decay (Bao et al. 2022, BEiT), and learning-rate schedules."""

import math
from collections.abc import Callable
from typing import Any

import torch
from timm import optim as timm_optim
from torch import nn

from clipx.config.schema import OptimizerConfig, RunConfig, ScheduleConfig
from clipx.errors import UserError
from clipx.models.temperature import TEMPERATURE_PREFIX
from clipx.models.towers.blocks import BLOCK, INPUT
from clipx.types import Progress
from clipx.utils.registry import lookup, one_of

LONGEST, SHORTENED = 0.5, 0.2  # a warm-up of more than half of the run is shortened to a fifth of the run
TIMM = "timm:"  # optimizer.kind=timm:NAME
Groups = list[dict[str, Any]]

# (progress after the warm-up in 0..1, schedule.cooldown) -> factor on lr - min_lr
SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "cosine": lambda progress, cooldown: 0.5 * (1 + math.cos(math.pi * progress)),
    "constant": lambda progress, cooldown: 1.0,
    "cooldown": lambda progress, cooldown: min(1.0, (1 - progress) / cooldown),  # linear to 0 in the last `cooldown`
}


def build_optimizer(model: nn.Module, config: RunConfig) -> torch.optim.Optimizer:
    """Build the optimizer, with a parameter group for each model component, layer and kind (decay or no_decay).

    Components are image, text, their projections and temperature; groups per layer exist with layer_decay only. Gains,
    biases and other one-dimensional parameters are not decayed. Each group has a `name` and an `lr_factor`, which
    `set_lr` multiplies by the scheduled learning rate.

    Raises UserError if everything is frozen, layer_decay is set for a tower without numbered layers, or timm has no
    optimizer of this name.
    """
    settings, layers = _component_settings(config), _layer_factors(model, config)
    groups: dict[str, dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        component = max((prefix for prefix in settings if name.startswith(prefix)), key=len)
        (lr_factor, weight_decay), (layer, layer_factor) = settings[component], layers.get(name, ("", 1.0))
        kind, weight_decay = ("decay", weight_decay) if parameter.ndim > 1 else ("no_decay", 0.0)
        group = f"{component.rstrip('.') or 'other'}{layer} {kind}"
        new = {"name": group, "params": [], "weight_decay": weight_decay, "lr_factor": lr_factor * layer_factor}
        groups.setdefault(group, new)["params"].append(parameter)
    if not groups:
        raise UserError(
            "nothing is trained: both towers are frozen and the temperature is fixed; set model.image.frozen or "
            "model.text.frozen to false"
        )
    return _optimizer(list(groups.values()), config)


def build_lr_schedule(config: ScheduleConfig, lr: float, steps_per_epoch: int) -> Callable[[Progress], float]:
    """Return the learning rate as a function of progress: linear warm-up to lr, then the schedule down to min_lr.

    Step k = 0, 1, ... of a warm-up of w steps has the rate warmup_lr + (lr - warmup_lr) (k + 1) / w. Raises UserError
    for an unknown schedule.kind.
    """
    shape = lookup(SCHEDULES, config.kind, "schedule.kind")

    def learning_rate(progress: Progress) -> float:
        warmup = warmup_steps(config, steps_per_epoch, progress.total_steps)
        if progress.step < warmup:
            return config.warmup_lr + (lr - config.warmup_lr) * (progress.step + 1) / warmup
        remaining = max(1, progress.total_steps - warmup)
        return config.min_lr + (lr - config.min_lr) * shape((progress.step - warmup) / remaining, config.cooldown)

    return learning_rate


def warmup_steps(config: ScheduleConfig, steps_per_epoch: int, total_steps: int) -> int:
    """Return the steps of the warm-up; the share SHORTENED of the run if they would be more than the share LONGEST."""
    epochs = config.warmup_epochs
    warmup = config.warmup_steps if epochs is None else round(epochs * steps_per_epoch)
    return warmup if warmup <= LONGEST * total_steps else round(SHORTENED * total_steps)


def notes(config: ScheduleConfig, steps_per_epoch: int, total_steps: int) -> list[str]:
    """Return a log line if the warm-up is shortened."""
    given, used = (warmup_steps(config, steps_per_epoch, steps) for steps in (10**12, total_steps))
    if given == used or not total_steps:
        return []
    return [f"the warm-up of {given} steps is shortened to {used}, a fifth of this run of {total_steps} steps"]


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set each group's learning rate to lr times its lr_factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]


def layer_depths(names: list[str]) -> dict[str, int]:
    """Return the layer of each parameter of a tower, by parameter name.

    `names` are in the model's order. 0 is the input layer (embeddings, stem), the blocks follow in order, and the
    highest number is the output layer. Libraries may number blocks from 0 or from 1 (ResNet's layer1).
    """
    number = {name: int(match[1]) for name in names if (match := BLOCK.search(name))}
    first, last = min(number.values(), default=0), max(number.values(), default=-1)
    # after the blocks are output layers, such as EfficientNet's bn2 and the positional embedding of a pooling
    before = set(names[: names.index(next(iter(number)))]) if number else set(names)
    is_input = {name: name in before and bool(INPUT.search(name)) for name in names if name not in number}
    outside = {name: 0 if of_input else last - first + 2 for name, of_input in is_input.items()}
    return outside | {name: n - first + 1 for name, n in number.items()}


OPTIMIZERS: dict[str, Callable[[Groups, OptimizerConfig], torch.optim.Optimizer]] = {
    "adamw": lambda groups, config: torch.optim.AdamW(
        groups, lr=config.lr, betas=(config.betas[0], config.betas[1]), eps=config.eps, fused=True
    ),
    "sgd": lambda groups, config: torch.optim.SGD(groups, lr=config.lr),
}


def _optimizer(groups: Groups, config: RunConfig) -> torch.optim.Optimizer:
    """Build the optimizer that optimizer.kind names: an entry of OPTIMIZERS, or `timm:NAME`."""
    kind, lr = config.optimizer.kind, config.optimizer.lr
    if not kind.startswith(TIMM):
        return lookup(OPTIMIZERS, kind, "optimizer.kind")(groups, config.optimizer)
    # the fused ones need Apex, and second-order ones the Hessian
    known = timm_optim.list_optimizers(exclude_filters=["fused*", "bnb*", "adahessian"])  # type: ignore[attr-defined]
    one_of(kind, [f"{TIMM}{name}" for name in known], "optimizer.kind")
    return timm_optim.create_optimizer_v2(groups, kind.removeprefix(TIMM), lr=lr)  # type: ignore[attr-defined]


def _component_settings(config: RunConfig) -> dict[str, tuple[float, float]]:
    """Return prefix of parameter names -> (lr factor, weight decay). The longest matching prefix applies."""
    model, decay = config.model, config.optimizer.weight_decay
    projection = (model.projection_lr_factor, decay)
    return {
        "": (1.0, decay),
        "image.": (model.image.lr_factor, decay if model.image.weight_decay is None else model.image.weight_decay),
        "text.": (model.text.lr_factor, decay if model.text.weight_decay is None else model.text.weight_decay),
        "image.projection.": projection,
        "text.projection.": projection,
        TEMPERATURE_PREFIX: (config.temperature.lr_factor, 0.0),
    }


def _layer_factors(model: nn.Module, config: RunConfig) -> dict[str, tuple[str, float]]:
    """Return parameter name -> (layer label, lr factor). Covers towers with layer_decay, except new projections."""
    found: dict[str, tuple[str, float]] = {}
    for prefix, tower in (("image.", config.model.image), ("text.", config.model.text)):
        if tower.layer_decay == 1:
            continue
        in_tower = [name for name, _ in model.named_parameters() if name.startswith(prefix)]
        names = [name for name in in_tower if not name.startswith(f"{prefix}projection.")]
        if not any(BLOCK.search(name) for name in names):
            raise UserError(
                f"model.{prefix}layer_decay={tower.layer_decay}: {tower.name} has no numbered layers; allowed: 1"
            )
        depths = layer_depths(names)
        top = max(depths.values())
        found |= {name: (f" layer {depth}", tower.layer_decay ** (top - depth)) for name, depth in depths.items()}
    return found
