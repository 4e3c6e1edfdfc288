"""Low-rank adapters of a tower (model.SIDE.lora=RANK): LoRA, Hu et al. 2021, arXiv 2106.09685.

A weight W [m, n] becomes W + 2 B A with B [m, RANK] and A [RANK, n]; only A and B are trained, and B starts at zero.
All weight matrices of the numbered blocks have adapters, those of attention and of the MLP: this is as good as training
all weights more often than attention alone, and so is the factor 2 (Biderman et al. 2024, arXiv 2405.09673).

The adapters are torch's parametrizations, so whatever reads `weight` gets the sum. (peft 0.21 adds the adapter of the
output layer of nn.MultiheadAttention twice.)
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models.towers.blocks import BLOCK

FACTOR = 2.0
LAYERS = nn.Linear | nn.MultiheadAttention  # query, key and value of attention are one matrix, in_proj_weight
WEIGHTS = ("weight", "in_proj_weight")
IS_ADAPTER = re.compile(r"\.parametrizations\.\w+\.0\.[AB]$")  # names of A and B


class Adapter(nn.Module):
    """W -> W + 2 B A, of the same shape."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        m, n = weight.shape
        self.A = nn.Parameter(torch.empty(rank, n, device=weight.device))
        self.B = nn.Parameter(torch.zeros(m, rank, device=weight.device))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))  # as Hu et al.'s code

    def forward(self, weight: Tensor) -> Tensor:
        """Float [m, n] -> [m, n]."""
        return weight + FACTOR * self.B @ self.A


def adapt(body: nn.Module, rank: int, setting: str) -> None:
    """Freeze a tower's body and add adapters to its blocks, in place.

    `setting` names the rank in errors, e.g. model.image.lora.

    Raises UserError: the tower has no linear layers in numbered blocks.
    """
    body.requires_grad_(False)
    layers = [m for name, m in body.named_modules() if isinstance(m, LAYERS) and BLOCK.search(f"{name}.")]
    if not layers:
        allowed = "0, or a tower that is a transformer"
        raise UserError(f"{setting}={rank}: the tower has no linear layers in numbered blocks; allowed: {allowed}")
    for layer in layers:
        for name in WEIGHTS:
            if isinstance(weight := getattr(layer, name, None), Tensor):
                parametrize.register_parametrization(layer, name, Adapter(weight, rank))


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a model with adapters as those of the same model without: W + 2 B A under W's name."""
    found = {}
    for name, value in weights.items():
        at = name.removesuffix("original")
        if f"{at}0.B" in weights:
            value = value + FACTOR * weights[f"{at}0.B"] @ weights[f"{at}0.A"]
        if not IS_ADAPTER.search(name):
            found[name_without(name)] = value
    return found


def name_without(name: str) -> str:
    """Return the name that a weight of a model with adapters has in the same model without."""
    return name.replace(".parametrizations.", ".").removesuffix(".original")


def has_adapters(names: Iterable[str]) -> bool:
    """Return True if adapters are among the weights with these names."""
    return any(map(IS_ADAPTER.search, names))


def without(config: RunConfig) -> RunConfig:
    """Return the settings of the same model without adapters."""
    model = config.model
    return replace(config, model=replace(model, image=replace(model.image, lora=0), text=replace(model.text, lora=0)))
