"""Weights averaged over the steps (train.ema)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Average:
    """e <- decay e + (1 - decay) w after each step that changed the weights; e starts as w.

    Running statistics of batch norms are averaged as weights are, since they belong to them; integers are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: w.detach().clone() for name, w in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Takes the model's weights in."""
        current = model.state_dict()
        means = [name for name, e in self.weights.items() if e.is_floating_point()]
        for name in self.weights.keys() - set(means):
            self.weights[name].copy_(current[name])
        averaged, new = [self.weights[name] for name in means], [current[name] for name in means]
        torch._foreach_lerp_(averaged, new, 1 - self.decay)

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Takes over what a checkpoint holds.

        Raises:
            KeyError: a weight is missing.
        """
        for name, e in self.weights.items():
            e.copy_(weights[name])
