"""Towers that output a weighted point set: every token is a point with a learned weight (paper 5, section 5.3)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from clipx.config.schema import PointsConfig
from clipx.models.kernels import REDUCTIONS
from clipx.models.token_outputs import TokenTower
from clipx.types import PointSet

BOUND = 100.0  # largest |weight|; without a bound the paper's runs diverged (appendix E)
# activation that bounds the weights: tanh allows both signs (the paper), sigmoid positive weights only (its ablation)
BOUNDS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": lambda x: BOUND * torch.tanh(x / BOUND),
    "sigmoid": lambda x: BOUND * torch.sigmoid(x / BOUND),
}


class PointTower(nn.Module):
    """Projects each token to d dimensions; a linear head without bias gives its weight, not normalised over the set."""

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
        """Images [b, 3, H, W] or token ids [b, L] -> points [b, K, d], not normalised, and weights [b, K]."""
        tokens = self.body(x)
        return PointSet(self.projection(tokens), self._weights(tokens))

    def penultimate_features(self, x: Tensor) -> Tensor:
        """Weighted mean (or sum) of the tokens before the projection, [b, width] (paper 5, table 2, "bef")."""
        tokens: Tensor = self.body(x)
        return (self._weights(tokens)[:, None, :] @ tokens.float())[:, 0] * self.reduction(tokens.shape[1])

    def _weights(self, tokens: Tensor) -> Tensor:
        return self.bound(self.weight_head(tokens)[..., 0].float())
