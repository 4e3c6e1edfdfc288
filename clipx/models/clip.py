"""The CLIP model: two towers, a head that embeds their outputs, and a temperature."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from open_clip.hf_model import HFTextEncoder
from open_clip.timm_model import TimmModel
from open_clip.transformer import TextTransformer, VisionTransformer
from torch import Tensor, nn

from clipx.config.schema import RunConfig
from clipx.errors import UserError, one_line
from clipx.models import frozen, point_sets, temperature
from clipx.models.frozen import FrozenTower
from clipx.models.heads import Head, KernelHead, SinglePointHead
from clipx.models.towers import blocks, lora
from clipx.models.towers.base import ImageTower, Projected, TextTower, Tower
from clipx.models.towers.hf_towers import PooledText
from clipx.types import Inputs, Progress
from clipx.utils.device import to_device


class ClipModel(nn.Module):
    """Embeds the batch of one process (b pairs): one vector per image and per text."""

    def __init__(
        self,
        image: nn.Module,
        text: nn.Module,
        tau: temperature.Temperature,
        bias: float | None,
        inputs: Inputs,
        head: Head,
        frozen: Sequence[nn.Module] = (),
        frozen_towers: Mapping[str, FrozenTower[Any]] | None = None,
    ) -> None:
        super().__init__()
        self.image = image
        self.text = text
        self.temperature = tau
        self.bias = None if bias is None else nn.Parameter(torch.tensor(bias))
        self.inputs = inputs
        self.head = head
        # names, not modules, because train.sync_batchnorm replaces some
        self.frozen = tuple(name for name, module in self.named_modules() if module in frozen)
        # side -> tower that is not part of the model: this side takes the tower's features instead of pixels or tokens
        self.frozen_towers = dict(frozen_towers or {})
        self.published_tau: float | None = None  # at which the published weights of both towers were trained
        self.train()  # puts the frozen modules in evaluation mode

    def train(self, mode: bool = True) -> Self:
        """Set the mode as in torch, but keep frozen modules in evaluation mode: no dropout, fixed batch statistics."""
        super().train(mode)
        for name in self.frozen:
            self.get_submodule(name).eval()
        return self

    def input_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of an image and of a text as the model takes them: pixels and token ids, or features."""
        size, length = self.inputs.image_size, self.inputs.context_length
        given = {side: tower.shape for side, tower in self.frozen_towers.items()}
        return given.get("image", (3, size, size)), given.get("text", (length,))

    def tower_digests(self) -> dict[str, str]:
        """Return side -> digest of the frozen tower whose features the model takes."""
        return {side: tower.digest for side, tower in self.frozen_towers.items()}

    def encode_image(self, image: Tensor) -> Tensor:
        """Embed images for evaluation: [b, 3, H, W] -> [b, E], always float32."""
        return self.head.evaluation(draw=0)(self.image(image))

    def encode_text(self, text: Tensor) -> Tensor:
        """Embed texts for evaluation: int64 [b, L] -> [b, E], always float32."""
        return self.head.evaluation(draw=0)(self.text(text))

    def penultimate_features(self, image: Tensor) -> Tensor:
        """Return features before the projection, float32 [b, width], for linear probes (paper 5, table 2, "bef").

        Raises UserError for a type of tower that FEATURES lacks.
        """
        if type(self.image) not in FEATURES:
            raise UserError(
                f"data.before_projection=true: {type(self.image).__name__} has no features before a projection; "
                "allowed: open_clip's own vision transformers, towers of timm: and small:, and towers with point sets"
            )
        return FEATURES[type(self.image)](self.image, image).float()

    def forward(self, image: Tensor, text: Tensor, progress: Progress) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return image [b, E], text [b, E], the scale 1/tau [] and the logit bias [].

        One call returns all four, because DDP must see every parameter in its forward pass. Scale and bias are copies,
        because they are logged after the step has changed the parameters.
        """
        scale = to_device(self.temperature(progress), image.device).clone()
        bias = None if self.bias is None else self.bias.clone()
        embed = self.head.training(progress)
        return embed(self.image(image)), embed(self.text(text)), scale, bias


def build_model(config: RunConfig, pretrained: bool = True) -> ClipModel:
    """Build the model of a run. `pretrained=False` skips published weights, for loading a checkpoint afterwards.

    Raises UserError like `build_towers`, and for point sets or gradient checkpointing that a tower does not support.
    """
    frozen_towers = frozen.frozen_towers(config)
    image, text = frozen.build_towers(config.model, pretrained, frozen_towers)
    if config.train.grad_checkpointing:
        _enable_grad_checkpointing(image.module, f"model.image.name={config.model.image.name}")
        _enable_grad_checkpointing(text.module, f"model.text.name={config.model.text.name}")
    head: Head
    if config.model.points.kernel == "none":
        head = SinglePointHead(config.model.normalise)
    elif config.model.normalise != "always":
        given = f"model.normalise={config.model.normalise}"
        raise UserError(f"{given} needs model.points.kernel=none: points of a set always have unit length")
    else:
        head = KernelHead(config.model.points, image.embed_dim, config.seed)
        _to_point_towers(config, image, text)
    fixed = [*_frozen_modules(config, "image", image), *_frozen_modules(config, "text", text)]
    inputs = Inputs(**vars(image.inputs), **vars(replace(text.inputs, clean=config.data.clean)))
    tau = temperature.build_temperature(config.temperature)
    model = ClipModel(image.module, text.module, tau, config.temperature.bias, inputs, head, fixed, frozen_towers)
    model.published_tau = image.tau if image.tau == text.tau else None
    return model


def _frozen_modules(config: RunConfig, side: str, tower: Tower[Any]) -> list[nn.Module]:
    """Freeze a tower, or a part of it, as configured; return the modules that stay in evaluation mode."""
    settings, body = getattr(config.model, side), tower.body
    if settings.lora:
        lora.adapt(body, settings.lora, f"model.{side}.lora")
        return []
    if n := settings.trainable_blocks:
        # with stored features, the model holds only the part that is trained
        return [] if config.data.features else blocks.freeze(body, n, f"model.{side}.trainable_blocks")
    return [body.requires_grad_(False)] if settings.frozen else []


def _to_point_towers(config: RunConfig, image: ImageTower, text: TextTower) -> None:
    """Convert both towers, in place, to towers that output weighted point sets."""
    points = config.model.points
    image_tokens = point_sets.to_token_tower(image.module, f"model.image.name={config.model.image.name}")
    text_tokens = point_sets.to_token_tower(text.module, f"model.text.name={config.model.text.name}")
    for tower, tokens in ((image, image_tokens), (text, text_tokens)):
        tower.module, tower.body, tower.tau = point_sets.PointTower(tokens, points), tokens.body, None
    if isinstance(image.body, point_sets.FeatureMap):
        try:
            _freeze_unused(image)
        except (RuntimeError, AttributeError) as error:  # several feature maps, or layers that follow the pooling
            name = f"model.image.name={config.model.image.name}"
            raise UserError(f"{name} gives no tokens (model.points.kernel): {one_line(error)}") from error


@torch.enable_grad()
def _freeze_unused(image: ImageTower) -> None:
    """Freeze the parameters on which the tokens do not depend, such as a norm of pooled features: DDP waits for all."""
    size = image.inputs.image_size
    sets = image.module.eval()(torch.zeros(1, 3, size, size))
    (sets.points.sum() + sets.weights.sum()).backward()
    for parameter in image.module.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None
    image.module.train()


def _without_projection(tower: VisionTransformer, image: Tensor) -> Tensor:
    """Run `forward` without the projection; works for pooling by class token, mean or attention."""
    projection, tower.proj = tower.proj, None
    try:
        pooled: Tensor = tower(image)
    finally:
        tower.proj = projection
    return pooled


# image tower -> function of the tower and images that returns the features before the projection
FEATURES: dict[type, Callable[[Any, Tensor], Tensor]] = {
    VisionTransformer: _without_projection,
    Projected: lambda tower, image: tower.body(image),
    point_sets.PointTower: lambda tower, image: tower.penultimate_features(image),
}


def _enable_grad_checkpointing(tower: nn.Module, setting: str) -> None:
    """Enable gradient checkpointing of a tower in place: activations are recomputed in the backward pass, not stored.

    Each library has its own switch. Call it before the tower is converted to point sets.
    `setting` names the tower, e.g. model.image.name=timm:resnet50. Raises UserError if the tower does not support it.
    """
    try:
        SWITCHES[type(tower)](tower)
    except (KeyError, AttributeError, AssertionError, NotImplementedError, ValueError) as error:  # not supported
        raise UserError(
            f"train.grad_checkpointing=true: {setting} does not support gradient checkpointing; open_clip's "
            "transformers do, and so do most towers of timm: and hf:"
        ) from error


def _transformers(encoder: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers 5 renames the method, 4 has only this name
        encoder.gradient_checkpointing_enable({"use_reentrant": False})  # reentrant checkpointing breaks DDP


def _projected(tower: Projected) -> None:
    body: Any = tower.body
    if type(body) is PooledText:
        _transformers(body.encoder)
    elif type(body) is not nn.Identity:
        body.set_grad_checkpointing(True)


SWITCHES: dict[type, Callable[[Any], None]] = {
    nn.Identity: lambda tower: None,  # its features are stored, so there is nothing to recompute
    VisionTransformer: lambda tower: tower.set_grad_checkpointing(True),
    TextTransformer: lambda tower: tower.set_grad_checkpointing(True),
    TimmModel: lambda tower: tower.trunk.set_grad_checkpointing(True),
    HFTextEncoder: lambda tower: _transformers(tower.transformer),
    Projected: _projected,
}
