"""Towers of open_clip; our small ones are open_clip configurations in configs/."""

import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import open_clip
import torch
from torch import nn

from clipx.config import ImageTowerConfig, TextTowerConfig
from clipx.errors import UserError, one_line
from clipx.hub import quiet_hub
from clipx.models import small  # noqa: F401  (registers the small towers)
from clipx.models.base import ImageTower, TextTower
from clipx.tables import did_you_mean, lookup
from clipx.types import Inputs, Pixels, Tokens

KINDS = {"open_clip": "configurations of open_clip and of clipx/models/configs"}


@cache
def names() -> tuple[str, ...]:
    """All tower names, `open_clip:NAME`."""
    open_clip.add_model_config(Path(__file__).parent / "configs")
    return tuple(f"open_clip:{name}" for name in open_clip.list_models())


def parse(name: str, key: str) -> str:
    """NAME of `open_clip:NAME`.

    Raises:
        UserError: naming `key` and the nearest names.
    """
    kind, colon, model = name.partition(":")
    if not colon:
        raise UserError(f"{key}={name} has no kind; write open_clip:{name}, `clipx ls towers` lists the names")
    lookup(KINDS, kind, key)
    if name not in names():
        near = did_you_mean(name, names())
        raise UserError(f"{key}={name} is not known; {near}`clipx ls towers` lists all {len(names())}")
    return model


def check_weights(model: str, pretrained: str | None, key: str) -> None:
    """Raises UserError where `pretrained` is neither a published tag nor a file; fetches nothing."""
    if pretrained and not _tag(model, pretrained) and not Path(pretrained).is_file():
        tags = open_clip.list_pretrained_tags_by_model(model)
        known = f"published for {model}: {', '.join(tags)}" if tags else f"none is published for {model}"
        raise UserError(f"{key}={pretrained} is neither published weights nor a file; {known}")


def create(
    model: str,
    pretrained: str | None,
    key: str,
    custom_text: bool,
    load: bool = True,
    image_size: int | None = None,
    context_length: int | None = None,
) -> nn.Module:
    """An open_clip model by name; `pretrained` is a published tag or a local file, None for random weights.

    With `load=False` the weights are left out (a checkpoint follows), but not the activation of their tag.
    Another image size or context length than the configuration's resamples or cuts the positions of the weights.

    Raises:
        UserError: weights that are neither published nor a file, cannot be fetched, or do not fit.
    """
    tag = _tag(model, pretrained)
    if load:
        check_weights(model, pretrained, key)
    try:
        with quiet_hub(fetching=bool(tag) and load), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return open_clip.create_model(  # type: ignore[no-any-return]
                model,
                pretrained=pretrained if load else None,
                force_custom_text=custom_text,
                # the activation that the weights were trained with, whatever the configuration says
                force_quick_gelu=bool(tag.get("quick_gelu", False)),
                force_image_size=image_size,
                force_context_length=context_length,
                pretrained_text=False,
                device=torch.get_default_device(),
            )
    except Exception as error:  # the hub's client and torch.load raise a dozen kinds
        if pretrained is None or not load:
            raise
        if "size mismatch" in str(error) and (image_size or context_length):
            raise UserError(
                f"{key}={pretrained}: these weights of {model} only fit its own image size and context length"
            ) from error
        raise UserError(_cannot_load(model, pretrained, tag, key, error)) from error


def build_image(config: ImageTowerConfig, embed_dim: int | None, load: bool) -> ImageTower:
    """The image tower of `open_clip:NAME`; its configuration fixes E, `load` as in `create`."""
    return _pair(config.name, config.pretrained, "model.image", load, config.size, None)[0]


def build_text(config: TextTowerConfig, embed_dim: int | None, load: bool) -> TextTower:
    """The text tower of `open_clip:NAME`."""
    return _pair(config.name, config.pretrained, "model.text", load, None, config.context_length)[1]


def build_both(image: ImageTowerConfig, text: TextTowerConfig, load: bool) -> tuple[ImageTower, TextTower]:
    """Both towers of one model, made once: the two settings name the same model and weights."""
    return _pair(image.name, image.pretrained, "model.image", load, image.size, text.context_length)


def _pair(
    name: str, pretrained: str | None, key: str, load: bool, image_size: int | None, context_length: int | None
) -> tuple[ImageTower, TextTower]:
    model_name = parse(name, f"{key}.name")
    config = open_clip.get_model_config(model_name)
    if "multimodal_cfg" in config:
        raise UserError(f"{key}.name={name} is a captioning model: it can be evaluated, not trained here")
    weights_key = f"{key}.pretrained"
    model: Any = create(model_name, pretrained, weights_key, True, load, image_size, context_length)
    return (
        ImageTower(model.visual, model.visual, config["embed_dim"], _pixels(model, model_name, pretrained)),
        TextTower(model.text, model.text, config["embed_dim"], Tokens(model_name, model.context_length)),
    )


def inputs_of(model: Any, name: str, pretrained: str | None) -> Inputs:
    """What an open_clip model was configured, or the weights of a tag were trained, to take."""
    return Inputs(**vars(_pixels(model, name, pretrained)), tokenizer=name, context_length=model.context_length)


def _pixels(model: Any, name: str, pretrained: str | None) -> Pixels:
    pixels: dict[str, Any] = {**open_clip.get_model_preprocess_cfg(model)}
    pixels.update({k: v for k, v in _tag(name, pretrained).items() if k in pixels and k != "size"})
    size = pixels["size"]
    return Pixels(
        image_size=size if isinstance(size, int) else size[0],
        mean=tuple(pixels["mean"]),
        std=tuple(pixels["std"]),
        interpolation=pixels["interpolation"],
        resize_mode=pixels["resize_mode"],
    )


def _tag(model: str, pretrained: str | None) -> dict[str, Any]:
    """What open_clip knows of a published tag; nothing of a file or of random weights."""
    return dict(open_clip.get_pretrained_cfg(model, pretrained)) if pretrained else {}


def _cannot_load(model: str, pretrained: str | None, tag: Mapping[str, Any], key: str, error: Exception) -> str:
    reason = one_line(error).partition(". ")[0]
    if not tag:
        return f"{key}={pretrained} does not hold weights of {model}: {reason}"
    repository = str(tag.get("hf_hub", "")).rstrip("/")
    fetch = f"`hf download {repository}`" if repository else f"a download of {tag.get('url')}"
    return (
        f"{key}={pretrained}: the weights are not on this machine and could not be fetched; run {fetch} "
        f"where there is a network, or give a local file in place of the tag ({reason})"
    )


def size(name: str) -> str:
    """Image size, embedding width and context length of a tower name, from its configuration."""
    config = open_clip.get_model_config(name.partition(":")[2])
    vision, text = config["vision_cfg"], config["text_cfg"]
    return f"{vision.get('image_size', 224)} px, E {config['embed_dim']}, {text.get('context_length', 77)} tokens"
