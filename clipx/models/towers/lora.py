"""Train low-rank adapters instead of the weights of a tower (LoRA, Hu et al. 2021): model.SIDE.lora=RANK.

A weight W [m, n] becomes W + 2 B A with B [m, RANK] and A [RANK, n]; only A and B are trained, and B starts at zero.
All weight matrices of the blocks (blocks.BLOCK) have adapters, those of attention and of the MLP, and alpha is 2 RANK,
as Biderman et al. 2024 (arXiv 2405.09673) recommend.

The adapters are torch's parametrizations, so whatever reads `weight` gets the sum. Do not use peft: version 0.21 adds
the adapter of the output layer of nn.MultiheadAttention twice.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models.towers.blocks import BLOCK

SCALING = 2.0  # alpha / RANK
LAYERS = nn.Linear | nn.MultiheadAttention  # query, key and value of attention are one matrix, in_proj_weight
WEIGHTS = ("weight", "in_proj_weight")
PARAMETRIZED = ".parametrizations."  # in torch's names of weights with adapters


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
        return weight + SCALING * self.B @ self.A


def adapt(body: nn.Module, rank: int, setting: str) -> None:
    """Freeze a tower's body and add adapters to its blocks, in place.

    `setting` names the rank in errors, e.g. model.image.lora.

    Raises UserError: the tower has no linear layers in numbered blocks.
    """
    body.requires_grad_(False)
    found = [m for name, m in body.named_modules() if isinstance(m, LAYERS) and BLOCK.search(f"{name}.")]
    layers = [layer for layer in found if not parametrize.is_parametrized(layer)]  # `merged` reads only the first
    if not layers:
        allowed = "0, or a tower that is a transformer"
        raise UserError(f"{setting}={rank}: the tower has no linear layers in numbered blocks; allowed: {allowed}")
    for layer in layers:
        for name in WEIGHTS:
            if isinstance(weight := getattr(layer, name, None), Tensor):
                parametrize.register_parametrization(layer, name, Adapter(weight, rank))


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Merge the adapters of a model into its weights: return W + 2 B A under the name of W.

    Raises UserError: an adapter has another shape or type than its weight, or only one of its matrices.
    """
    found = dict(weights)
    for name in adapted(weights):
        stem = name.removesuffix("original")
        W, A, B = found.pop(name), found.pop(f"{stem}0.A", None), found.pop(f"{stem}0.B", None)
        fit = A is not None and B is not None and (len(B), *A.shape[1:]) == W.shape and A.shape[:1] == B.shape[1:]
        if A is None or B is None or not fit or not A.dtype == B.dtype == W.dtype:
            raise UserError(f"the weight {name} has an adapter that is incomplete, or of another shape or type")
        found[merged_name(name)] = W + SCALING * B @ A
    return found


def merged_name(name: str) -> str:
    """Return the name that a weight with an adapter has in the same model without adapters."""
    return name.replace(PARAMETRIZED, ".").removesuffix(".original")


def adapted(names: Collection[str]) -> list[str]:
    """Return the names of the weights W with an adapter; other parametrizations have no A and no B."""
    stems = [name.removesuffix("original") for name in names if PARAMETRIZED in name and name.endswith(".original")]
    return [f"{stem}original" for stem in stems if f"{stem}0.A" in names or f"{stem}0.B" in names]


def without(config: RunConfig) -> RunConfig:
    """Return the settings of the same model without adapters."""
    model = config.model
    return replace(config, model=replace(model, image=replace(model.image, lora=0), text=replace(model.text, lora=0)))
