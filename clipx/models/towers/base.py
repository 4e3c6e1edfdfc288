"""Common interface of towers from different libraries."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor, nn

from clipx.errors import UserError, one_line
from clipx.types import Pixels, Tokens

InputsT = TypeVar("InputsT", Pixels, Tokens)


@dataclass
class Tower(Generic[InputsT]):
    """A tower and the images or token ids it expects."""

    module: nn.Module  # [b, 3, H, W] or [b, L] -> [b, E]
    body: nn.Module  # the part that `frozen` freezes: all except a projection that clipx adds
    embed_dim: int  # E
    inputs: InputsT


ImageTower = Tower[Pixels]
TextTower = Tower[Tokens]

LOCAL_OR_RANDOM = "a local file or folder, or null for random weights"  # alternative to a download


class Projected(nn.Module):
    """A body with one feature vector per sample and a linear projection to E (papers 1 and 3)."""

    def __init__(self, body: nn.Module, width: int, embed_dim: int) -> None:
        super().__init__()
        self.body = body
        self.projection = nn.Linear(width, embed_dim)  # the optimizer finds projections by this name

    def forward(self, x: Tensor) -> Tensor:
        """[b, ...] -> [b, E]."""
        projected: Tensor = self.projection(self.body(x))
        return projected


def split_kind(name: str, kinds: Iterable[str], key: str) -> tuple[str, str]:
    """Split `KIND:NAME`; `key` is the setting that holds it. Raises UserError if KIND is missing or unknown."""
    kind, colon, model = name.partition(":")
    if not colon:
        raise UserError(f"{key}={name} has no kind; write open_clip:{name}, `clipx ls towers` lists the names")
    if kind not in kinds:
        allowed = " or ".join(f"{k}:NAME" for k in kinds)
        raise UserError(f"{key}={name}: unknown kind {kind!r}; allowed: {allowed}")
    return kind, model


def download_error(setting: str, command: str, alternative: str, error: Exception) -> UserError:
    """Return the error for weights that could not be downloaded, with a command to run and an alternative."""
    return UserError(
        f"{setting}: the weights are not on this machine and could not be downloaded; run {command} where there is a "
        f"network, or give {alternative} ({one_line(error).partition('. ')[0]})"
    )
