"""Low-rank adapters of a tower (model.SIDE.lora=RANK): LoRA, Hu et al. 2021, arXiv 2106.09685, through peft.

A weight W [m, n] becomes W + 2 B A with B [m, RANK] and A [RANK, n]; only A and B are trained, and B starts at zero.
All linear layers of the numbered blocks have adapters, those of attention and of the MLP: this is as good as training
all weights more often than attention alone, and so is the factor 2 (Biderman et al. 2024, arXiv 2405.09673).
"""

from dataclasses import replace
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models.towers.base import Tower
from clipx.models.towers.blocks import BLOCK
from clipx.types import Pixels

ADAPTER = "default"  # peft's name of the only adapter of a layer
FACTOR = 2  # alpha / RANK


def adapt(tower: Tower[Any], rank: int, setting: str) -> nn.Module:
    """Add adapters to the body of a tower, in place, and freeze the rest of the body; return the body.

    `setting` names the rank in errors, e.g. model.image.lora.

    Raises UserError: peft is not installed, or the tower has layers that it cannot adapt.
    """
    given = f"{setting}={rank}"
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ModuleNotFoundError as error:
        raise UserError(f"{given} needs the extra `lora`: pip install -e '.[lora]' in the checkout") from error
    names = _layers(tower.body)
    if not names:
        raise UserError(f"{given}: the tower has no linear layers in numbered blocks; allowed: 0")
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=FACTOR * rank, target_modules=names), tower.body)
    adapted = [tower.body.get_submodule(name) for name in names]
    for layer in adapted:
        if isinstance(layer.base_layer, nn.MultiheadAttention):
            layer.forward = MethodType(_attend, layer)
            layer._restore_weights = _nothing
    tower.body.eval()
    _check_called(tower, adapted, given)
    return tower.body


def merge(model: nn.Module) -> nn.Module:
    """Add the adapters of a model, if it has any, to its weights, in place; layers and names are then as without."""
    for name, layer in reversed(list(model.named_modules())):  # the output layer of attention before attention
        if hasattr(layer, "get_delta_weight"):
            base: Any = layer.base_layer
            weight = base.in_proj_weight if isinstance(base, nn.MultiheadAttention) else base.weight
            weight.data += layer.get_delta_weight(ADAPTER)
            model.set_submodule(name, base)
    return model


def set_own_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load the weights of a model without adapters; the adapters stay."""
    named = {name: weights.get(name.replace(".base_layer", ""), own) for name, own in model.state_dict().items()}
    model.load_state_dict(named)


def without(config: RunConfig) -> RunConfig:
    """Return the settings of the same model without adapters."""
    model = config.model
    return replace(config, model=replace(model, image=replace(model.image, lora=0), text=replace(model.text, lora=0)))


def _layers(body: nn.Module) -> list[str]:
    """Return the names of the layers to adapt; that of attention stands for its four linear layers."""
    found = {name: module for name, module in body.named_modules() if BLOCK.search(f"{name}.")}
    attention = [f"{name}." for name, module in found.items() if isinstance(module, nn.MultiheadAttention)]
    kinds = nn.Linear | nn.MultiheadAttention
    return [name for name, module in found.items() if isinstance(module, kinds) and not name.startswith((*attention,))]


def _attend(layer: Any, *inputs: Tensor, **options: Any) -> Any:
    """Compute attention with W + 2 B A, in place of peft's forward pass.

    peft 0.21 computes W as (W + 2 B A) - 2 B A after each pass, which rounds, and adds the adapter of the output layer
    twice, with the gradient of once.
    """
    attention = layer.base_layer
    output = attention.out_proj
    weights = {
        "in_proj_weight": attention.in_proj_weight + layer.get_delta_weight(ADAPTER),
        "out_proj.base_layer.weight": output.weight + output.get_delta_weight(ADAPTER),
    }
    return torch.func.functional_call(attention, weights, inputs, options)


def _nothing() -> None:
    """Replace a method of peft that makes new parameters of the weights whenever modules are listed."""


@torch.no_grad()
def _check_called(tower: Tower[Any], adapted: list[nn.Module], given: str) -> None:
    """Raise UserError if the tower reads the weights of an adapted layer itself, as EVA does for its biases."""
    if any(parameter.is_meta for parameter in tower.body.parameters()):  # of a forecast, which trains nothing
        return
    called: set[nn.Module] = set()
    hooks = [layer.register_forward_pre_hook(lambda layer, inputs: called.add(layer)) for layer in adapted]
    inputs = tower.inputs
    if isinstance(inputs, Pixels):
        tower.module(torch.zeros(1, 3, inputs.image_size, inputs.image_size))
    else:
        tower.module(torch.ones(1, inputs.context_length, dtype=torch.int64))  # all vocabularies have id 1
    for hook in hooks:
        hook.remove()
    if len(called) < len(adapted):
        raise UserError(f"{given}: this tower does not call all of its linear layers; allowed: 0")
