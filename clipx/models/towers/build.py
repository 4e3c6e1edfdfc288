"""Towers by name, `KIND:NAME`; a kind is a library, and none of its models is re-implemented."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import nn

from clipx.config.schema import ImageTowerConfig, ModelConfig, TextTowerConfig
from clipx.errors import UserError, one_line
from clipx.models.towers import hf_towers, open_clip_towers, timm_towers
from clipx.models.towers.base import ImageTower, TextTower

Builder = TypeVar("Builder")

# from the settings, E and whether weights are to be loaded; E is None for those that fix it themselves
IMAGE: dict[str, Callable[[ImageTowerConfig, int | None, bool], ImageTower]] = {
    "open_clip": open_clip_towers.build_image,
    "timm": timm_towers.build_timm_tower,
}
TEXT: dict[str, Callable[[TextTowerConfig, int | None, bool], TextTower]] = {
    "open_clip": open_clip_towers.build_text,
    "hf": hf_towers.build_hf_tower,
}


def build_towers(model: ModelConfig, load: bool) -> tuple[ImageTower, TextTower]:
    """Both towers of a run; with `load=False` published weights are left out (a checkpoint follows).

    Raises:
        UserError: unknown towers, missing weights, settings that a tower cannot take, or towers of two widths.
    """
    build_image = _kind(model.image.name, "model.image.name", IMAGE)
    build_text = _kind(model.text.name, "model.text.name", TEXT)
    same = model.image.name == model.text.name and model.image.pretrained == model.text.pretrained
    if same and build_image is open_clip_towers.build_image:
        image, text = open_clip_towers.build_both(model.image, model.text, load)
    else:
        image = build_image(model.image, model.embed_dim, load)
        text = build_text(model.text, model.embed_dim, load)
    _check_widths(model, image, text)
    if model.image.size is not None:
        _check_size(model.image, image)
    if model.projection_lr_factor != 1 and not any(t.module is not t.body for t in (image, text)):
        raise UserError(
            f"model.projection_lr_factor={model.projection_lr_factor} has nothing to act on: only timm: and hf: "
            f"towers have a projection of their own, not {model.image.name} and {model.text.name}"
        )
    return image, text


def _kind(name: str, key: str, table: Mapping[str, Builder]) -> Builder:
    kind, colon, _ = name.partition(":")
    if not colon:
        raise UserError(f"{key}={name} has no kind; write open_clip:{name}, `clipx ls towers` lists the names")
    if kind not in table:
        allowed = " or ".join(f"{k}:NAME" for k in table)
        raise UserError(f"{key}={name}: unknown kind {kind!r}; allowed: {allowed}")
    return table[kind]


def _check_widths(model: ModelConfig, image: ImageTower, text: TextTower) -> None:
    for key, name, width in (
        ("model.image.name", model.image.name, image.embed_dim),
        ("model.text.name", model.text.name, text.embed_dim),
    ):
        if model.embed_dim is not None and width != model.embed_dim:
            raise UserError(
                f"model.embed_dim={model.embed_dim} does not fit {key}={name}, whose configuration says {width}: "
                "leave it out, or take timm: and hf: towers, which are projected to any width"
            )
    if image.embed_dim != text.embed_dim:
        raise UserError(
            f"model.image.name={model.image.name} embeds in {image.embed_dim} dimensions, "
            f"model.text.name={model.text.name} in {text.embed_dim}: take towers of the same width"
        )


@torch.no_grad()
def _check_size(config: ImageTowerConfig, tower: ImageTower) -> None:
    """Whether images of a size that the tower was not made for go through it."""
    assert config.size is not None
    module: nn.Module = tower.module
    was_training = module.training
    try:
        module.eval()(torch.zeros(1, 3, config.size, config.size))
    except Exception as error:  # shapes that do not fit end in many kinds
        raise UserError(f"model.image.size={config.size} does not suit {config.name}: {one_line(error)}") from error
    finally:
        module.train(was_training)


def listing() -> dict[str, str]:
    """What `clipx ls towers` prints: every open_clip name, and how to write the others."""
    return {
        "timm:NAME": f"{len(timm_towers.names())} image towers of timm, e.g. timm:resnet50; E by model.embed_dim",
        "hf:NAME_OR_FOLDER": "text towers of Hugging Face, e.g. hf:distilbert-base-uncased; E by model.embed_dim",
        **{name: open_clip_towers.size(name) for name in open_clip_towers.names()},
    }
