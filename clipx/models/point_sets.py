"""Towers that output a weighted point set: every token is a point with a learned weight (paper 5, section 5.3).

open_clip's towers compute the tokens anyway. The option `output_tokens` would drop the class token; `pool_type="none"`
keeps it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from open_clip.transformer import TextTransformer, VisionTransformer
from torch import Tensor, nn

from clipx.config.schema import PointsConfig
from clipx.errors import UserError
from clipx.models.kernels import REDUCTIONS
from clipx.models.towers.base import Projected
from clipx.models.towers.hf_towers import MaskedTokens, PooledText
from clipx.types import PointSet

BOUND = 100.0  # largest |weight|; without a bound the paper's runs diverged (appendix A.1)
# activation that bounds the weights: tanh allows both signs (the paper), sigmoid positive weights only (its ablation)
BOUNDS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": lambda x: BOUND * torch.tanh(x / BOUND),
    "sigmoid": lambda x: BOUND * torch.sigmoid(x / BOUND),
}


@dataclass
class TokenTower:
    """A tower that returns its tokens, and the projection removed from it."""

    body: nn.Module  # -> [b, K, width]
    projection: Tensor  # [width, d]


class PointTower(nn.Module):
    """Projects each token to d dimensions. A linear head without bias gives each token's weight, not normalised."""

    def __init__(self, tokens: TokenTower, config: PointsConfig) -> None:
        super().__init__()
        width, d = tokens.projection.shape
        self.body = tokens.body
        self.projection = nn.Linear(width, d, bias=False)  # the optimizer finds projections by this name
        self.projection.weight.data = tokens.projection.T.contiguous()
        self.weight_head = nn.Linear(width, 1, bias=False)
        nn.init.normal_(self.weight_head.weight, std=width**-0.5)
        self.bound = BOUNDS[config.weights]
        self.reduction = REDUCTIONS[config.reduce]

    def forward(self, x: Tensor) -> PointSet:
        """Map images [b, 3, H, W] or token ids [b, L] to points [b, K, d], not normalised, and weights [b, K]."""
        tokens = self.body(x)
        return PointSet(self.projection(tokens), self._weights(tokens))

    def penultimate_features(self, x: Tensor) -> Tensor:
        """Return the weighted mean or sum of the tokens before the projection, [b, width] (paper 5, table 2, "bef")."""
        tokens: Tensor = self.body(x)
        return (self._weights(tokens)[:, None, :] @ tokens.float())[:, 0] * self.reduction(tokens.shape[1])

    def _weights(self, tokens: Tensor) -> Tensor:
        weights = self.bound(self.weight_head(tokens)[..., 0].float())
        return weights * tokens.any(dim=-1)  # tokens of zeros are padding, to which sigmoid would give weight 50


def to_token_tower(tower: nn.Module, setting: str) -> TokenTower:
    """Convert a tower, in place, so that it returns its K tokens.

    For a text tower K is the context length; for a vision transformer K counts the class token: 197 for ViT-B/16.
    `setting` names the tower in errors, e.g. model.image.name=timm:resnet50. Raises UserError for an unsupported tower.
    """
    tokens = CONVERTERS[type(tower)](tower) if type(tower) in CONVERTERS else None
    if tokens is None:
        raise UserError(
            f"{setting} gives no tokens for a point set (model.points.kernel): use a tower of timm: or hf: with a "
            "linear head, small:vit and small:transformer, or a transformer of open_clip (a text transformer must pool "
            "at the end of the text)"
        )
    return tokens


def _vision_transformer(tower: VisionTransformer) -> TokenTower | None:
    projection = tower.proj
    if tower.attn_pool is not None or projection is None:
        return None
    tower.proj, tower.pool_type = None, "none"
    return TokenTower(tower, projection.detach())


def _text_transformer(tower: TextTransformer) -> TokenTower | None:
    projection = tower.text_projection
    if tower.pool_type != "argmax" or tower.cls_emb is not None or type(projection) is not nn.Parameter:
        return None
    tower.text_projection, tower.pool_type = None, "none"
    return TokenTower(PaddedText(tower), projection.detach())


class PaddedText(nn.Module):
    """A text transformer with learned tokens [PAD1], [PAD2], ... after the end of the text (paper 5, section 5.3).

    The padding ids come after the vocabulary, so that no padding token shares the embedding of a word.
    """

    def __init__(self, tower: TextTransformer) -> None:
        super().__init__()
        self.tower = tower
        self.vocabulary = tower.vocab_size
        words = tower.token_embedding.weight
        table = nn.Embedding(self.vocabulary + tower.context_length - 1, tower.width)
        nn.init.normal_(table.weight, std=0.02)  # as open_clip initialises words
        table.weight.data[: self.vocabulary] = words.data
        tower.token_embedding = table

    def forward(self, text: Tensor) -> Tensor:
        """int64 [b, L] -> [b, L, width]."""
        tokens: Tensor = self.tower(self.padded(text))
        return tokens

    def padded(self, text: Tensor) -> Tensor:
        """Put [PADk] k positions after the end-of-text token, whose id is the largest of the text."""
        end = text.argmax(dim=1, keepdim=True)
        distance = torch.arange(text.shape[1], device=text.device) - end
        return torch.where(distance > 0, self.vocabulary + distance - 1, text)


def _projected(tower: Projected) -> TokenTower | None:
    """Convert a tower whose projection is linear; None for an MLP, and for a body without tokens."""
    body, projection = _tokens(tower.body), tower.projection
    if body is not None and isinstance(projection, nn.Sequential):  # of model.*.standardise
        body, projection = nn.Sequential(body, projection[0]), projection[1]
    if body is None or not isinstance(projection, nn.Linear):
        return None
    return TokenTower(body, projection.weight.detach().T)


def _tokens(body: nn.Module) -> nn.Module | None:
    if type(body).__module__.startswith("timm."):
        return FeatureMap(body)
    return TOKENS[type(body)](body) if type(body) in TOKENS else None


class FeatureMap(nn.Module):
    """The cells of the last feature map of a timm tower, or its tokens."""

    def __init__(self, trunk: Any) -> None:
        super().__init__()
        self.trunk = trunk

    def forward(self, image: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, K, width]."""
        cells: Tensor = self.trunk.forward_features(image)
        if getattr(self.trunk, "output_fmt", "NCHW") == "NHWC":  # such as Swin
            return cells.flatten(1, 2)
        return cells if cells.ndim == 3 else cells.flatten(2).transpose(1, 2)


# body of a tower that clipx projects, except timm's -> its tokens
TOKENS: dict[type, Callable[[Any], nn.Module]] = {
    nn.Identity: lambda body: body,  # the tokens are stored, see clipx.models.frozen
    PooledText: lambda body: MaskedTokens(body.encoder, body.padding),
}
CONVERTERS: dict[type, Callable[[Any], TokenTower | None]] = {
    Projected: _projected,
    VisionTransformer: _vision_transformer,
    TextTransformer: _text_transformer,
}
