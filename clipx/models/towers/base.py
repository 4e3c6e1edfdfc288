"""Common interface of towers from different libraries."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from clipx.errors import UserError
from clipx.types import Pixels, Tokens

InputsT = TypeVar("InputsT", Pixels, Tokens)


@dataclass
class Tower(Generic[InputsT]):
    """A tower and the images or token ids it expects."""

    module: nn.Module  # [b, 3, H, W] or [b, L] -> [b, E]
    body: nn.Module  # the part that `frozen` freezes: all except a projection that clipx adds
    embed_dim: int  # E
    inputs: InputsT
    tau: float | None = None  # the temperature of published weights, if they state one


ImageTower = Tower[Pixels]
TextTower = Tower[Tokens]

LOCAL_OR_RANDOM = (
    "give a local file or folder (`make towers` fetches two), or null for random weights"  # alternative to a download
)


class Projected(nn.Module):
    """A body that gives one feature vector per sample, and a projection to E: linear (papers 1 and 3) or an MlpHead."""

    def __init__(self, body: nn.Module, width: int, embed_dim: int) -> None:
        super().__init__()
        self.body = body
        self.width = width
        self.projection: nn.Module = nn.Linear(width, embed_dim)  # the optimizer finds projections by this name

    def forward(self, x: Tensor) -> Tensor:
        """[b, ...] -> [b, E]."""
        projected: Tensor = self.projection(self.body(x))
        return projected


class Standardise(nn.Module):
    """(x - mean) / deviation, with those of the training set. Token vectors of zeros are padding and stay zero."""

    mean: Tensor  # [width]
    deviation: Tensor  # [width]

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """[b, width] or [b, K, width] -> the same shape."""
        scaled = (x - self.mean) / self.deviation
        return scaled if x.ndim == 2 else scaled * x.any(dim=-1, keepdim=True)


class MlpHead(nn.Module):
    """W2 dropout(gelu(W1 x + b1)) + b2 + W0 x; `linear=False` leaves out W0 x."""

    def __init__(self, width: int, hidden: int, embed_dim: int, dropout: float, linear: bool) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout))
        self.output = nn.Linear(hidden, embed_dim)
        self.linear = nn.Linear(width, embed_dim, bias=False) if linear else None

    def forward(self, x: Tensor) -> Tensor:
        """[b, width] -> [b, E]."""
        embedded: Tensor = self.output(self.hidden(x))
        return embedded if self.linear is None else embedded + self.linear(x)


def split_kind(name: str, kinds: Iterable[str], key: str) -> tuple[str, str]:
    """Split `KIND:NAME`; `key` is the setting that holds it. Raises UserError if KIND is missing or unknown."""
    kind, colon, model = name.partition(":")
    if not colon:
        raise UserError(f"{key}={name} has no kind; write open_clip:{name}, `clipx ls towers` lists the names")
    if kind not in kinds:
        allowed = " or ".join(f"{k}:NAME" for k in kinds)
        raise UserError(f"{key}={name}: unknown kind {kind!r}; allowed: {allowed}")
    return kind, model
