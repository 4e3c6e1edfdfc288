"""Image towers of timm, `timm:NAME` or `timm:NAME.TAG`: globally pooled features and a projection to E.

Image size, mean and standard deviation come from timm's entry for a weights tag: the tag in `pretrained`, else the
tag in the name, else timm's default tag of that name.
"""

from functools import cache
from pathlib import Path
from typing import Any

import timm
from timm.data.config import resolve_data_config
from timm.models import get_pretrained_cfg_value, load_state_dict, split_model_name_tag

from clipx.config.schema import ImageTowerConfig
from clipx.errors import UserError, one_line
from clipx.models.towers.base import LOCAL_OR_RANDOM, ImageTower, Projected
from clipx.types import Pixels
from clipx.utils.hub import download_error, quiet_hub
from clipx.utils.registry import did_you_mean

KEY = "model.image"
FILES = ("model.safetensors", "pytorch_model.bin")  # weights in a folder downloaded from the hub


@cache
def model_names() -> tuple[str, ...]:
    """Return timm's architectures, without those that small_cnn.py adds to timm's registry."""
    return tuple(timm.list_models(exclude_filters="clipx_*"))


@cache
def pretrained_tags(name: str) -> tuple[str, ...]:
    """Return the tags of the published weights of an architecture."""
    return tuple(full.partition(".")[2] for full in timm.list_pretrained(f"{name}.*"))


def build_timm_tower(config: ImageTowerConfig, embed_dim: int | None, load: bool) -> ImageTower:
    """Build the tower; `load=False` loads no weights, but still uses their image size and normalisation.

    Raises UserError for an unknown name, a missing E, or weights that are unknown, not downloadable or do not fit.
    """
    name, named_tag = _parse_name(config.name)
    if embed_dim is None:
        raise UserError(f"model.embed_dim= is needed for {KEY}.name={config.name}: the width of the projection")
    published = config.pretrained in pretrained_tags(name)
    tag = config.pretrained if published else named_tag
    full = f"{name}.{tag}" if tag else name
    size: dict[str, Any] = {}
    if config.size is not None and get_pretrained_cfg_value(full, "fixed_input_size"):
        size["img_size"] = config.size  # towers with position embeddings need the size, others accept any
    body: Any
    if config.pretrained is None or not load:
        body = timm.create_model(full, num_classes=0, **size)
    else:
        # loaded with the classifier: without it timm would accept files with missing weights
        body = _load_published(full, size) if published else _load_local(full, config.pretrained, size)
        body.reset_classifier(0)
    data: dict[str, Any] = resolve_data_config({}, model=body)  # type: ignore[no-untyped-call]
    pixels = Pixels(
        image_size=config.size or data["input_size"][-1],
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        interpolation=data["interpolation"],
        resize_mode="shortest",
    )
    return ImageTower(Projected(body, body.head_hidden_size, embed_dim), body, embed_dim, pixels)


def _parse_name(name: str) -> tuple[str, str]:
    """Return architecture and tag of `timm:NAME` or `timm:NAME.TAG`; the tag may be empty."""
    model, tag = split_model_name_tag(name.partition(":")[2])
    if model not in model_names():
        raise UserError(
            f"{KEY}.name={name} is not known; {did_you_mean(model, model_names())}"
            "`clipx ls towers` explains tower names, timm.list_models() lists timm's"
        )
    if tag and tag not in pretrained_tags(model):
        known = ", ".join(pretrained_tags(model))
        raise UserError(f"{KEY}.name={name} has an unknown tag; published for {model}: {known}")
    return model, tag


def _load_published(full: str, size: dict[str, Any]) -> Any:
    setting = f"{KEY}.pretrained={full.partition('.')[2]}"
    try:
        with quiet_hub(fetching=True):
            return timm.create_model(full, pretrained=True, **size)
    except Exception as error:  # the hub client raises many types
        if "state_dict" in str(error):  # of load_state_dict
            raise UserError(f"{setting} does not fit {KEY}.size={size.get('img_size')}: {one_line(error)}") from error
        raise download_error(setting, f"`hf download timm/{full}`", LOCAL_OR_RANDOM, error) from error


def _load_local(full: str, pretrained: str, size: dict[str, Any]) -> Any:
    """Load the weights of a local file or folder, saved with or without a classifier."""
    name = full.partition(".")[0]
    path = Path(pretrained)
    path = next((path / file for file in FILES if (path / file).is_file()), path)
    if not path.is_file():
        tags = pretrained_tags(name)
        known = f"published for {name}: {', '.join(tags)}" if tags else f"none is published for {name}"
        raise UserError(
            f"{KEY}.pretrained={pretrained} is neither published weights, nor a file, nor a folder with "
            f"{' or '.join(FILES)}; {known}"
        )
    try:
        classes = _num_classes(full, load_state_dict(str(path), weights_only=True))
        overlay = {
            "file": str(path),
            "num_classes": classes,
            "custom_load": False,  # else timm 1.0.21 reads the file as .npz where the published weights are .npz
        }
        return timm.create_model(full, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=classes, **size)
    except Exception as error:  # torch.load and load_state_dict raise many types
        raise UserError(f"{KEY}.pretrained={pretrained} does not hold weights of {name}: {one_line(error)}") from error


def _num_classes(full: str, weights: dict[str, Any]) -> int:
    """Return the number of classes of the saved classifier, or 0. A strict load needs it, to refuse missing weights."""
    classifier = get_pretrained_cfg_value(full, "classifier")
    first = classifier if isinstance(classifier, str) else (classifier or ("",))[0]
    return len(weights[f"{first}.weight"]) if f"{first}.weight" in weights else 0
