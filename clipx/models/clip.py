"""Two towers and a temperature."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipx import temperature
from clipx.config import RunConfig
from clipx.models import towers
from clipx.types import Inputs, Progress


class ClipModel(nn.Module):
    """Embeds a local batch: one point per image and text, L2-normalised unless `normalise` is off."""

    def __init__(
        self,
        image: nn.Module,
        text: nn.Module,
        tau: temperature.Temperature,
        bias: float | None,
        inputs: Inputs,
        normalise: bool = True,
        frozen: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.image = image
        self.text = text
        self.temperature = tau
        self.bias = None if bias is None else nn.Parameter(torch.tensor(bias))
        self.inputs = inputs
        self.normalise = normalise
        self.frozen = tuple(frozen)  # parts of the towers that do not change
        for part in self.frozen:
            part.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """As in torch, but frozen parts stay in evaluation mode: no dropout, no new batch statistics."""
        super().train(mode)
        for part in self.frozen:
            part.eval()
        return self

    def encode_image(self, image: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, E], float32 whatever the towers compute in."""
        return self._point(self.image(image))

    def encode_text(self, text: Tensor) -> Tensor:
        """[b, L] -> [b, E]."""
        return self._point(self.text(text))

    def forward(self, image: Tensor, text: Tensor, progress: Progress) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Image [b, E], text [b, E], the scale 1/tau [] and the logit bias [].

        All in one call, so that DDP sees every parameter.
        """
        scale = self.temperature(progress).to(image.device)
        return self.encode_image(image), self.encode_text(text), scale, self.bias

    def _point(self, features: Tensor) -> Tensor:
        return F.normalize(features.float(), dim=-1) if self.normalise else features.float()


def build(config: RunConfig, pretrained: bool = True) -> ClipModel:
    """The model of a run; `pretrained=False` leaves published weights out (a checkpoint follows).

    Raises:
        UserError: as `towers.build`.
    """
    image, text = towers.build(config.model, load=pretrained)
    tokens = replace(text.tokens, clean=config.data.clean)
    frozen = [t.body for t, c in ((image, config.model.image), (text, config.model.text)) if c.frozen]
    inputs = Inputs(**vars(image.pixels), **vars(tokens))
    tau = temperature.build(config.temperature)
    return ClipModel(image.module, text.module, tau, config.temperature.bias, inputs, config.model.normalise, frozen)
