"""Image towers of timm, `timm:NAME` or `timm:NAME.TAG`: globally pooled features and a projection to E.

Size, mean and standard deviation are those that timm states for the weights: of the tag in `pretrained`, else of
the tag in the name, else of timm's default weights of that name.
"""

from functools import cache
from pathlib import Path
from typing import Any

import timm
from timm.data.config import resolve_data_config
from timm.models import load_state_dict, split_model_name_tag
from torch import nn

from clipx.config.schema import ImageTowerConfig
from clipx.errors import UserError, one_line
from clipx.models.towers.base import ImageTower, Projected
from clipx.types import Pixels
from clipx.utils.hub import quiet_hub
from clipx.utils.registry import did_you_mean

KEY = "model.image"
FILES = ("model.safetensors", "pytorch_model.bin")  # what a folder of timm's weights on the hub holds


@cache
def names() -> tuple[str, ...]:
    """timm's architectures."""
    return tuple(timm.list_models(exclude_filters="clipx_*"))  # ours are for open_clip configurations


@cache
def tags(name: str) -> tuple[str, ...]:
    """Published weights of an architecture."""
    return tuple(full.partition(".")[2] for full in timm.list_pretrained(f"{name}.*"))


def build_timm_tower(config: ImageTowerConfig, embed_dim: int | None, load: bool) -> ImageTower:
    """The tower of the settings; with `load=False` weights are left out, but not their pixels.

    Raises:
        UserError: an unknown name, no E, or weights that are neither published nor here, or do not fit.
    """
    name, named_tag = _parse(config.name)
    if embed_dim is None:
        raise UserError(f"model.embed_dim= is needed for {KEY}.name={config.name}: the width that it is projected to")
    tag = config.pretrained if config.pretrained in tags(name) else named_tag
    full = f"{name}.{tag}" if tag else name
    size: dict[str, Any] = {}
    if config.size is not None and _stated(full).fixed_input_size:
        size["img_size"] = config.size  # a tower with positions is made for the size, others take any
    body: Any
    if config.pretrained is None or not load:
        body = timm.create_model(full, num_classes=0, **size)
    elif config.pretrained in tags(name):
        body = _fetched(full, config.pretrained, size)
    else:
        body = _from_file(full, config.pretrained, size)
    module = Projected(body, body.head_hidden_size, embed_dim)
    return ImageTower(module, body, embed_dim, _pixels(body, config.size))


def _parse(name: str) -> tuple[str, str]:
    model, tag = split_model_name_tag(name.partition(":")[2])
    if model not in names():
        raise UserError(
            f"{KEY}.name={name} is not known; {did_you_mean(model, names())}"
            "`clipx ls towers` says how towers are named, timm.list_models() which timm has"
        )
    if tag and tag not in tags(model):
        raise UserError(f"{KEY}.name={name} has an unknown tag; published for {model}: {', '.join(tags(model))}")
    return model, tag


def _fetched(full: str, tag: str, size: dict[str, Any]) -> nn.Module:
    """With published weights, of the hub or its cache; loaded with their classifier, so that nothing may be missing."""
    try:
        with quiet_hub(fetching=True):
            body = timm.create_model(full, pretrained=True, **size)
    except Exception as error:  # the hub's client raises a dozen kinds
        raise UserError(
            f"{KEY}.pretrained={tag}: the weights are not on this machine and could not be fetched; run "
            f"`hf download timm/{full}` where there is a network, or give a local file or folder in place of the "
            f"tag, or null for random weights ({one_line(error)})"
        ) from error
    return _without_classifier(body)


def _from_file(full: str, pretrained: str, size: dict[str, Any]) -> nn.Module:
    """With the weights of a local file or folder, with or without a classifier."""
    path = Path(pretrained)
    path = next((path / file for file in FILES if (path / file).is_file()), path)
    name = full.partition(".")[0]
    if not path.is_file():
        known = f"published for {name}: {', '.join(tags(name))}" if tags(name) else f"none is published for {name}"
        raise UserError(
            f"{KEY}.pretrained={pretrained} is neither published weights, nor a file, nor a folder with "
            f"{' or '.join(FILES)}; {known}"
        )
    try:
        classes = _classes(full, load_state_dict(str(path), weights_only=True))
        overlay = {"file": str(path), "num_classes": classes}
        body = timm.create_model(full, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=classes, **size)
    except Exception as error:  # torch.load and load_state_dict raise a dozen kinds
        raise UserError(f"{KEY}.pretrained={pretrained} does not hold weights of {name}: {one_line(error)}") from error
    return _without_classifier(body)


def _classes(full: str, weights: dict[str, Any]) -> int:
    """Classes of the classifier among the weights: only a model of as many is checked for missing weights by timm."""
    classifier = _stated(full).classifier
    first = classifier if isinstance(classifier, str) else (classifier or ("",))[0]
    return len(weights[f"{first}.weight"]) if f"{first}.weight" in weights else 0


def _stated(full: str) -> Any:
    """What timm states of an architecture's default or named weights; it does so for all that it lists."""
    return timm.get_pretrained_cfg(full)


def _without_classifier(body: Any) -> nn.Module:
    body.reset_classifier(0)
    module: nn.Module = body
    return module


def _pixels(body: nn.Module, size: int | None) -> Pixels:
    data: dict[str, Any] = resolve_data_config({}, model=body)  # type: ignore[no-untyped-call]
    return Pixels(
        image_size=size or data["input_size"][-1],
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        interpolation=data["interpolation"],
        resize_mode="shortest",
    )
