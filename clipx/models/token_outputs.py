"""All output tokens of a tower, before its pooling and projection.

open_clip's towers compute them anyway; its `output_tokens` drops the class token, `pool_type = "none"` does not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from open_clip.timm_model import TimmModel
from open_clip.transformer import TextTransformer, VisionTransformer
from torch import Tensor, nn

from clipx.errors import UserError


@dataclass
class TokenTower:
    """A tower that keeps its tokens."""

    body: nn.Module  # -> [b, K, width]
    projection: Tensor  # [width, d] of open_clip's initialisation or weights


def image_tokens(tower: nn.Module, name: str) -> TokenTower:
    """The tokens of an image tower, which is changed: 197 of ViT-B/16, the class token among them.

    Raises:
        UserError: a tower of another kind.
    """
    return _of(IMAGE, tower, f"model.image.name={name}", "a vision transformer of open_clip, or a small one")


def text_tokens(tower: nn.Module, name: str) -> TokenTower:
    """The tokens of a text tower, which is changed: its context length in number.

    Raises:
        UserError: a tower of another kind, or one that pools otherwise than at the end of the text.
    """
    return _of(TEXT, tower, f"model.text.name={name}", "a text transformer of open_clip that pools at the end of text")


def _of(
    table: dict[type, Callable[[Any], TokenTower | None]], tower: nn.Module, setting: str, needed: str
) -> TokenTower:
    found = table[type(tower)](tower) if type(tower) in table else None
    if found is None:
        raise UserError(f"{setting} gives no tokens for a point set (model.points.kernel): take {needed}")
    return found


def _vision_transformer(tower: VisionTransformer) -> TokenTower | None:
    projection = tower.proj
    if tower.attn_pool is not None or projection is None:
        return None
    tower.proj, tower.pool_type = None, "none"
    return TokenTower(tower, projection.detach())


def _feature_map(tower: TimmModel) -> TokenTower | None:
    """The cells of a convolutional trunk's last map, where open_clip's head pools them with attention."""
    pool: Any = dict(tower.head.named_children()).get("pool")
    if pool is None:
        return None
    width, d = tower.trunk.num_features, pool.proj.out_features
    return TokenTower(Cells(tower.trunk, width), torch.randn(width, d) * width**-0.5)


class Cells(nn.Module):
    """The cells of a feature map as tokens, in layer norm as a transformer's are."""

    def __init__(self, trunk: nn.Module, width: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.norm = nn.LayerNorm(width)

    def forward(self, image: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, cells, width]."""
        tokens: Tensor = self.norm(self.trunk(image).flatten(2).transpose(1, 2))
        return tokens


def _text_transformer(tower: TextTransformer) -> TokenTower | None:
    projection = tower.text_projection
    if tower.pool_type != "argmax" or tower.cls_emb is not None or type(projection) is not nn.Parameter:
        return None
    tower.text_projection, tower.pool_type = None, "none"
    return TokenTower(PaddedText(tower), projection.detach())


class PaddedText(nn.Module):
    """A text transformer with learned tokens [PAD1], [PAD2], ... after the end of the text (paper 5, section 5.3).

    Their ids follow the vocabulary's, so that none stands for a word as well; the distance from the end counts.
    """

    def __init__(self, tower: TextTransformer) -> None:
        super().__init__()
        self.tower = tower
        self.vocabulary = tower.vocab_size
        words = tower.token_embedding.weight
        table = nn.Embedding(self.vocabulary + tower.context_length - 1, tower.width)
        nn.init.normal_(table.weight, std=0.02)  # as open_clip's words
        table.weight.data[: self.vocabulary] = words.data
        tower.token_embedding = table

    def forward(self, text: Tensor) -> Tensor:
        """int64 [b, L] -> [b, L, width]."""
        tokens: Tensor = self.tower(self.padded(text))
        return tokens

    def padded(self, text: Tensor) -> Tensor:
        """The ids with [PADk] k places after the end of the text, which is the largest id."""
        end = text.argmax(dim=1, keepdim=True)
        distance = torch.arange(text.shape[1], device=text.device) - end
        return torch.where(distance > 0, self.vocabulary + distance - 1, text)


IMAGE: dict[type, Callable[[Any], TokenTower | None]] = {
    VisionTransformer: _vision_transformer,
    TimmModel: _feature_map,
}
TEXT: dict[type, Callable[[Any], TokenTower | None]] = {TextTransformer: _text_transformer}
