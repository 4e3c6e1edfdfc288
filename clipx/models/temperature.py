"""The temperature tau as an object: gives the scale 1/tau that every objective multiplies similarities with.

Learned temperatures differ in how 1/tau depends on the parameter nu (paper 4, section 4.1, "TR"); all start
at the same tau. Their bounds hold by clamping nu after each step, so that nu at a bound still receives
gradients that lead away from it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipx.config.schema import TemperatureConfig
from clipx.errors import UserError
from clipx.types import Progress
from clipx.utils.registry import lookup


class Temperature(nn.Module):
    """Base: `forward(progress)` returns the scale 1/tau, a tensor []."""

    def forward(self, progress: Progress) -> Tensor:
        """The scale 1/tau at this progress."""
        raise NotImplementedError

    def clamp_(self) -> None:
        """Brings parameters back into their bounds; called after each optimizer step."""


@dataclass(frozen=True)
class Parameterisation:
    """1/tau as a function of nu, and nu as a function of 1/tau; s is the divisor of `scaled_exp`."""

    scale: Callable[[Tensor, float], Tensor]
    nu: Callable[[float, float], float]


PARAMETERISATIONS = {
    "exp": Parameterisation(lambda nu, s: nu.exp(), lambda scale, s: math.log(scale)),
    "scaled_exp": Parameterisation(lambda nu, s: (nu / s).exp(), lambda scale, s: s * math.log(scale)),
    # log(e^scale - 1), written so that it does not overflow
    "softplus": Parameterisation(lambda nu, s: F.softplus(nu), lambda scale, s: scale + math.log(-math.expm1(-scale))),
    "identity": Parameterisation(lambda nu, s: nu, lambda scale, s: scale),
}


class Learned(Temperature):
    """1/tau a function of the learned nu, min_scale <= 1/tau <= max_scale."""

    def __init__(self, config: TemperatureConfig) -> None:
        super().__init__()
        low, high = config.min_scale, config.max_scale
        if not low <= high:
            raise UserError(f"temperature.min_scale={low} is above temperature.max_scale={high}")
        # a tau that lies at a bound only up to rounding, 1/0.01 say, is at it
        if not low * (1 - 1e-6) <= 1 / config.tau <= high * (1 + 1e-6):
            raise UserError(
                f"temperature.tau={config.tau:g} starts out of temperature.min_scale..max_scale: "
                f"1/tau={1 / config.tau:g}, allowed: {low:g}..{high:g}"
            )
        self.parameterisation = lookup(PARAMETERISATIONS, config.parameterisation, "temperature.parameterisation")
        self.s = config.s
        self.nu = nn.Parameter(torch.tensor(self.parameterisation.nu(1 / config.tau, self.s)))
        self.min_nu = self.parameterisation.nu(low, self.s)
        self.max_nu = self.parameterisation.nu(high, self.s)

    def forward(self, progress: Progress) -> Tensor:
        return self.parameterisation.scale(self.nu, self.s)

    @torch.no_grad()
    def clamp_(self) -> None:
        self.nu.clamp_(self.min_nu, self.max_nu)


class Fixed(Temperature):
    """1/tau constant (paper 4, FLT)."""

    scale: Tensor

    def __init__(self, config: TemperatureConfig) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(1 / config.tau))

    def forward(self, progress: Progress) -> Tensor:
        return self.scale


class Scheduled(Temperature):
    """tau moves from tau to tau_end: once (`linear`), or to and fro (`cosine`); see `path`."""

    def __init__(self, config: TemperatureConfig) -> None:
        super().__init__()
        if config.tau_end is None:
            raise UserError(f"temperature.kind={config.kind} needs temperature.tau_end, the other end of the schedule")
        self.tau, self.tau_end = config.tau, config.tau_end
        self.path = PATHS[config.kind]
        self.fraction = lookup(FRACTIONS, config.every, "temperature.every")
        self.periods = config.periods

    def forward(self, progress: Progress) -> Tensor:
        way = self.path(self.fraction(progress), self.periods)
        return torch.tensor(1 / (self.tau + way * (self.tau_end - self.tau)))


def notes(config: TemperatureConfig, total_epochs: int, is_trained: bool) -> list[str]:
    """A line for the log where tau stays where it is though the settings sound otherwise.

    Args:
        is_trained: whether the objective has a gradient for it.
    """
    if config.kind == "learned" and not is_trained:
        return [f"temperature.kind=learned, but the objective has no gradient for it: tau stays at {config.tau:g}"]
    needed = {"linear": 2, "cosine": 3}.get(config.kind, 0)
    if config.every != "epoch" or total_epochs >= needed:
        return []
    return [f"temperature.every=epoch keeps tau at {config.tau:g} in {total_epochs} epochs: set temperature.every=step"]


PATHS: dict[str, Callable[[float, float], float]] = {
    "linear": lambda fraction, periods: fraction,  # paper 4, "TS"
    # paper 4, "A0" and "A1": the text says no more than that the alternation follows a cosine
    "cosine": lambda fraction, periods: (1 - math.cos(2 * math.pi * periods * fraction)) / 2,
}
FRACTIONS: dict[str, Callable[[Progress], float]] = {
    "epoch": lambda p: p.epoch / max(1, p.total_epochs - 1),
    "step": lambda p: p.step / max(1, p.total_steps - 1),
}
TEMPERATURES: dict[str, Callable[[TemperatureConfig], Temperature]] = {
    "learned": Learned,
    "fixed": Fixed,
    "linear": Scheduled,
    "cosine": Scheduled,
}


def build_temperature(config: TemperatureConfig) -> Temperature:
    """The temperature of a run.

    Raises:
        UserError: unknown kind or parameterisation, a learned 1/tau that starts out of bounds, no tau_end.
    """
    return lookup(TEMPERATURES, config.kind, "temperature.kind")(config)
