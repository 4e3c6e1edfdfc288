"""The temperature tau as an object: gives the scale 1/tau that every objective multiplies similarities with.

Learned (CLIP, paper 4's baseline): 1/tau = exp(nu), nu_0 = log(1/tau_0), bounded by clamping nu after
each step, so that nu at the bound still receives gradients that lead away from it.
"""

import math

import torch
from torch import Tensor, nn

from clipx.config import TemperatureConfig
from clipx.errors import UserError
from clipx.tables import lookup
from clipx.types import Progress


class Temperature(nn.Module):
    """Base: `forward(progress)` returns the scale 1/tau, a tensor []."""

    def forward(self, progress: Progress) -> Tensor:
        """The scale 1/tau at this progress."""
        raise NotImplementedError

    def bound_(self) -> None:
        """Brings parameters back into their bounds; called after each optimizer step."""


class Learned(Temperature):
    """1/tau = exp(nu) with nu learned, 1/tau <= max_scale."""

    def __init__(self, config: TemperatureConfig) -> None:
        super().__init__()
        self.nu = nn.Parameter(torch.tensor(math.log(1 / config.tau)))
        self.max_nu = math.log(config.max_scale)

    def forward(self, progress: Progress) -> Tensor:
        return self.nu.exp()

    @torch.no_grad()
    def bound_(self) -> None:
        self.nu.clamp_(max=self.max_nu)


class Fixed(Temperature):
    """1/tau constant (paper 4, FLT)."""

    scale: Tensor

    def __init__(self, config: TemperatureConfig) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(1 / config.tau))

    def forward(self, progress: Progress) -> Tensor:
        return self.scale


TEMPERATURES = {"learned": Learned, "fixed": Fixed}


def build(config: TemperatureConfig) -> Temperature:
    """The temperature of a run.

    Raises:
        UserError: unknown kind, or an initial 1/tau above the bound.
    """
    if 1 / config.tau > config.max_scale * (1 + 1e-6):
        raise UserError(
            f"temperature.tau={config.tau} starts above temperature.max_scale={config.max_scale}: "
            f"tau must be at least {1 / config.max_scale:g}"
        )
    return lookup(TEMPERATURES, config.kind, "temperature.kind")(config)
