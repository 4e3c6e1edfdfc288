"""What a tower is, whatever library it comes from."""

from dataclasses import dataclass

from torch import Tensor, nn

from clipx.types import Pixels, Tokens


@dataclass
class ImageTower:
    """An image tower and what it takes."""

    module: nn.Module  # [b, 3, H, W] -> [b, E]
    body: nn.Module  # the part that `frozen` freezes: all but a projection of ours
    embed_dim: int  # E
    pixels: Pixels


@dataclass
class TextTower:
    """A text tower and what it takes."""

    module: nn.Module  # [b, L] -> [b, E]
    body: nn.Module
    embed_dim: int
    tokens: Tokens


class Projected(nn.Module):
    """A body with one feature vector a sample, and our linear projection to E (papers 1 and 3)."""

    def __init__(self, body: nn.Module, width: int, embed_dim: int) -> None:
        super().__init__()
        self.body = body
        self.projection = nn.Linear(width, embed_dim)  # the optimizer knows it by this name

    def forward(self, x: Tensor) -> Tensor:
        """[b, ...] -> [b, E]."""
        projected: Tensor = self.projection(self.body(x))
        return projected
