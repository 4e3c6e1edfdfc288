"""Two towers, a head that makes vectors of what they give, and a temperature."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models import grad_checkpointing, penultimate, point_sets, temperature, token_outputs
from clipx.models.heads import Head, KernelHead, OnePoint
from clipx.models.towers import build as towers
from clipx.models.towers.base import ImageTower, TextTower
from clipx.types import Inputs, Progress
from clipx.utils.registry import lookup


class ClipModel(nn.Module):
    """Embeds a local batch: one vector per image and text."""

    def __init__(
        self,
        image: nn.Module,
        text: nn.Module,
        tau: temperature.Temperature,
        bias: float | None,
        inputs: Inputs,
        head: Head,
        frozen: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.image = image
        self.text = text
        self.temperature = tau
        self.bias = None if bias is None else nn.Parameter(torch.tensor(bias))
        self.inputs = inputs
        self.head = head
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
        """[b, 3, H, W] -> [b, E] for evaluation, float32 whatever the towers compute in."""
        return self.head.evaluation(draw=0)(self.image(image))

    def encode_text(self, text: Tensor) -> Tensor:
        """[b, L] -> [b, E] for evaluation."""
        return self.head.evaluation(draw=0)(self.text(text))

    def before_projection(self, image: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, width], float32.

        Raises:
            UserError: the image tower has nothing before its projection.
        """
        return penultimate.penultimate_features(self.image, image).float()

    def forward(self, image: Tensor, text: Tensor, progress: Progress) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Image [b, E], text [b, E], the scale 1/tau [] and the logit bias [].

        All in one call, so that DDP sees every parameter.
        """
        scale = self.temperature(progress).to(image.device)
        embed = self.head.training(progress)
        return embed(self.image(image)), embed(self.text(text)), scale, self.bias


def build_model(config: RunConfig, pretrained: bool = True) -> ClipModel:
    """The model of a run; `pretrained=False` leaves published weights out (a checkpoint follows).

    Raises:
        UserError: as `towers.build`; point sets of towers that have no tokens to give, gradient checkpointing of
            towers that have none.
    """
    image, text = towers.build_towers(config.model, load=pretrained)
    if config.train.grad_checkpointing:
        grad_checkpointing.enable_grad_checkpointing(image.module, f"model.image.name={config.model.image.name}")
        grad_checkpointing.enable_grad_checkpointing(text.module, f"model.text.name={config.model.text.name}")
    head = _head(config, image, text)
    prepared = replace(text.tokens, clean=config.data.clean)
    frozen = [t.body for t, c in ((image, config.model.image), (text, config.model.text)) if c.frozen]
    inputs = Inputs(**vars(image.pixels), **vars(prepared))
    tau = temperature.build_temperature(config.temperature)
    return ClipModel(image.module, text.module, tau, config.temperature.bias, inputs, head, frozen)


def _head(config: RunConfig, image: ImageTower, text: TextTower) -> Head:
    """The head of the settings; for point sets the towers are changed to give them."""
    model, points = config.model, config.model.points
    if points.kernel == "none":
        return OnePoint(model.normalise)
    if not model.normalise:
        raise UserError("model.normalise=false is for one point a sample: points of a set are always of unit length")
    head = KernelHead(points, image.embed_dim, config.seed)
    bound = lookup(point_sets.BOUNDS, points.weights, "model.points.weights")
    of_image, of_text = (
        token_outputs.image_tokens(image.module, model.image.name),
        token_outputs.text_tokens(text.module, model.text.name),
    )
    for tower, found in ((image, of_image), (text, of_text)):
        tower.module, tower.body = point_sets.PointTower(found, bound, points.reduce), found.body
    return head
