"""The temperature tau: learned, fixed or scheduled. The model multiplies all similarities by the scale 1/tau.

A learned 1/tau is a function of the parameter nu; every parameterisation starts at the same tau:

    exp          1/tau = exp(nu)             Radford et al. 2021; paper 4, eq. 1
    scaled_exp   1/tau = exp(nu / s)         paper 4, appendix D.1 "TR", s > 1
    softplus     1/tau = log(1 + exp(nu))    paper 4, section 4.1 "TR"
    identity     1/tau = nu                  paper 4, appendix C

nu is clamped after each step to keep 1/tau within its bounds. Clamping 1/tau in the forward pass would
give no gradient outside them.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipx.config.schema import TemperatureConfig
from clipx.errors import UserError
from clipx.types import Progress
from clipx.utils.registry import lookup

TEMPERATURE_PREFIX = "temperature."  # begins the names of its weights in a model
# 1/tau as a function of nu and s, and the inverse: nu as a function of 1/tau and s
PARAMETERISATIONS: dict[str, tuple[Callable[[Tensor, float], Tensor], Callable[[float, float], float]]] = {
    "exp": (lambda nu, s: nu.exp(), lambda scale, s: math.log(scale)),
    "scaled_exp": (lambda nu, s: (nu / s).exp(), lambda scale, s: s * math.log(scale)),
    # the inverse is log(e^scale - 1), in a form that does not overflow
    "softplus": (lambda nu, s: F.softplus(nu), lambda scale, s: scale + math.log(-math.expm1(-scale))),
    "identity": (lambda nu, s: nu, lambda scale, s: scale),
}
# schedules: (fraction of the run, periods) -> position between tau (0) and tau_end (1)
PATHS: dict[str, Callable[[float, float], float]] = {
    "linear": lambda fraction, periods: fraction,  # paper 4, "TS"
    # paper 4, "A0" and "A1": the paper only says that the alternation follows a cosine
    "cosine": lambda fraction, periods: (1 - math.cos(2 * math.pi * periods * fraction)) / 2,
}
# temperature.every -> fraction of the run, 0 in the first and 1 in the last epoch or step
FRACTIONS: dict[str, Callable[[Progress], float]] = {
    "epoch": lambda p: p.epoch / max(1, p.total_epochs - 1),
    "step": lambda p: p.step / max(1, p.total_steps - 1),
}


class Temperature(nn.Module):
    """Base class: `forward(progress)` returns the scale 1/tau, a tensor []."""

    def clamp_(self) -> None:
        """Clamp parameters to their bounds; called after each optimizer step."""


class Learned(Temperature):
    """1/tau as a function of the learned nu, with min_scale <= 1/tau <= max_scale."""

    def __init__(self, config: TemperatureConfig) -> None:
        super().__init__()
        low, high = config.min_scale, config.max_scale
        if not low <= high:
            raise UserError(f"temperature.min_scale={low} is above temperature.max_scale={high}")
        # tolerates rounded decimals, such as tau=0.3333333 with max_scale=3
        if not low * (1 - 1e-6) <= 1 / config.tau <= high * (1 + 1e-6):
            raise UserError(
                f"temperature.tau={config.tau:g} is outside temperature.min_scale..max_scale: "
                f"1/tau={1 / config.tau:g}, allowed: {low:g}..{high:g}"
            )
        self.scale_of, nu_of = lookup(PARAMETERISATIONS, config.parameterisation, "temperature.parameterisation")
        self.s = config.s
        self.nu = nn.Parameter(torch.tensor(nu_of(1 / config.tau, self.s)))
        self.min_nu, self.max_nu = nu_of(low, self.s), nu_of(high, self.s)

    def forward(self, progress: Progress) -> Tensor:
        return self.scale_of(self.nu, self.s)

    @torch.no_grad()
    def clamp_(self) -> None:
        self.nu.clamp_(self.min_nu, self.max_nu)


class Fixed(Temperature):
    """Constant 1/tau (paper 4, "FLT")."""

    scale: Tensor

    def __init__(self, config: TemperatureConfig) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(1 / config.tau))

    def forward(self, progress: Progress) -> Tensor:
        return self.scale


class Scheduled(Temperature):
    """Moves tau from `tau` to `tau_end`: once (`linear`), or back and forth (`cosine`)."""

    def __init__(self, config: TemperatureConfig) -> None:
        super().__init__()
        if config.tau_end is None:
            raise UserError(f"temperature.kind={config.kind} needs temperature.tau_end, the other end of the schedule")
        self.tau, self.tau_end = config.tau, config.tau_end
        self.path = PATHS[config.kind]
        self.fraction = lookup(FRACTIONS, config.every, "temperature.every")
        self.periods = config.periods

    def forward(self, progress: Progress) -> Tensor:
        position = self.path(self.fraction(progress), self.periods)
        return torch.tensor(1 / (self.tau + position * (self.tau_end - self.tau)))


TEMPERATURES: dict[str, Callable[[TemperatureConfig], Temperature]] = {
    "learned": Learned,
    "fixed": Fixed,
    "linear": Scheduled,
    "cosine": Scheduled,
}


def build_temperature(config: TemperatureConfig) -> Temperature:
    """Build the temperature of a run.

    Raises UserError for an unknown name, a learned 1/tau that starts outside its bounds, or a missing tau_end.
    """
    return lookup(TEMPERATURES, config.kind, "temperature.kind")(config)


def same_nu(a: TemperatureConfig, b: TemperatureConfig) -> bool:
    """Return True if both learn nu with the same parameterisation, so that equal nu means equal tau."""
    uses_s = a.parameterisation == "scaled_exp"
    same = a.parameterisation == b.parameterisation and (a.s == b.s or not uses_s)
    return a.kind == b.kind == "learned" and same


def published_note(config: TemperatureConfig, published: float | None) -> list[str]:
    """Return a log line if the start weights were trained with another tau than that of the run's first step."""
    if published is None or math.isclose(published, config.tau, rel_tol=0.01):
        return []
    return [
        f"the start weights were trained with tau {published:.4g}, and this run starts at temperature.tau="
        f"{config.tau:g}: set temperature.tau={published:.4g} to go on from theirs"
    ]


def notes(config: TemperatureConfig, total_epochs: int, is_trained: bool) -> list[str]:
    """Return a log line if tau stays constant although the settings suggest otherwise.

    `is_trained` is True if the objective has a gradient for the temperature.
    """
    if config.kind == "learned" and not is_trained:
        return [f"temperature.kind=learned, but the objective has no gradient for it: tau stays at {config.tau:g}"]
    if config.kind not in PATHS or config.every != "epoch":
        return []
    schedule = Scheduled(config)
    scales = [schedule(Progress(0, 1, epoch, total_epochs)) for epoch in range(total_epochs)]
    if not all(torch.isclose(scale, scales[0]) for scale in scales):
        return []
    return [f"temperature.every=epoch keeps tau at {config.tau:g} in {total_epochs} epochs: set temperature.every=step"]
