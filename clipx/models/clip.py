"""Two towers and a temperature."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipx import temperature
from clipx.config import RunConfig
from clipx.errors import UserError
from clipx.models.towers import build_pair
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
        normalise: bool,
    ) -> None:
        super().__init__()
        self.image = image
        self.text = text
        self.temperature = tau
        self.bias = None if bias is None else nn.Parameter(torch.tensor(bias))
        self.inputs = inputs
        self.normalise = normalise

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
        UserError: unknown towers, missing weights, or towers of different embedding widths.
    """
    image, text = config.model.image, config.model.text
    same = image == text
    image_pair = build_pair(image.name, image.pretrained, "model.image", pretrained)
    text_pair = image_pair if same else build_pair(text.name, text.pretrained, "model.text", pretrained)
    if image_pair.embed_dim != text_pair.embed_dim:
        raise UserError(
            f"model.image.name={image.name} embeds in {image_pair.embed_dim} dimensions, "
            f"model.text.name={text.name} in {text_pair.embed_dim}: take towers of the same width"
        )
    inputs = image_pair.inputs.with_text(text_pair.inputs)
    tau = temperature.build(config.temperature)
    return ClipModel(image_pair.image, text_pair.text, tau, config.temperature.bias, inputs, config.model.normalise)
