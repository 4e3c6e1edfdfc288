"""Image and text towers, all of them open_clip's; our small ones are open_clip configurations in configs/."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import open_clip
from torch import nn

from clipx.errors import UserError
from clipx.hub import quiet_hub
from clipx.models import small  # noqa: F401  (registers the small towers)
from clipx.tables import lookup
from clipx.types import Inputs

KINDS = {"open_clip": "configurations of open_clip and of clipx/models/configs"}


@dataclass
class Pair:
    """Both towers of one open_clip model; a run may take the image tower of one and the text tower of another."""

    image: nn.Module  # [b, 3, H, W] -> [b, E]
    text: nn.Module  # [b, L] -> [b, E]
    embed_dim: int
    inputs: Inputs


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
        near = get_close_matches(name, names(), n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise UserError(f"{key}={name} is not known; {hint}`clipx ls towers` lists all {len(names())}")
    return model


def create(model: str, pretrained: str | None, key: str, custom_text: bool, load: bool = True) -> nn.Module:
    """An open_clip model by name; `pretrained` is a published tag or a local file, None for random weights.

    With `load=False` the weights are left out (a checkpoint follows), but not the activation of their tag.

    Raises:
        UserError: weights that are neither published nor a file, cannot be fetched, or do not fit.
    """
    tag = _tag(model, pretrained)
    if pretrained and load and not tag and not Path(pretrained).is_file():
        tags = open_clip.list_pretrained_tags_by_model(model)
        known = f"published for {model}: {', '.join(tags)}" if tags else f"none is published for {model}"
        raise UserError(f"{key}={pretrained} is neither published weights nor a file; {known}")
    try:
        with quiet_hub(fetching=bool(tag) and load), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return open_clip.create_model(  # type: ignore[no-any-return]
                model,
                pretrained=pretrained if load else None,
                force_custom_text=custom_text,
                # the activation that the weights were trained with, whatever the configuration says
                force_quick_gelu=bool(tag.get("quick_gelu", False)),
                pretrained_text=False,
            )
    except Exception as error:  # the hub's client and torch.load raise a dozen kinds
        if pretrained is None or not load:
            raise
        raise UserError(_cannot_load(model, pretrained, tag, key, error)) from error


def build_pair(name: str, pretrained: str | None, key: str, load: bool) -> Pair:
    """Both towers of `open_clip:NAME`; `key` is the setting for messages, `load` as in `create`."""
    model_name = parse(name, f"{key}.name")
    config = open_clip.get_model_config(model_name)
    if "multimodal_cfg" in config:
        raise UserError(f"{key}.name={name} is a captioning model: it can be evaluated, not trained here")
    model: Any = create(model_name, pretrained, f"{key}.pretrained", custom_text=True, load=load)
    return Pair(model.visual, model.text, config["embed_dim"], inputs_of(model, model_name, pretrained))


def inputs_of(model: Any, name: str, pretrained: str | None) -> Inputs:
    """What an open_clip model was configured, or the weights of a tag were trained, to take."""
    pixels: dict[str, Any] = {**open_clip.get_model_preprocess_cfg(model)}
    pixels.update({k: v for k, v in _tag(name, pretrained).items() if k in pixels and k != "size"})
    size = pixels["size"]
    return Inputs(
        image_size=size if isinstance(size, int) else size[0],
        mean=tuple(pixels["mean"]),
        std=tuple(pixels["std"]),
        interpolation=pixels["interpolation"],
        resize_mode=pixels["resize_mode"],
        tokenizer=name,
        context_length=model.context_length,
    )


def _tag(model: str, pretrained: str | None) -> dict[str, Any]:
    """What open_clip knows of a published tag; nothing of a file or of random weights."""
    return dict(open_clip.get_pretrained_cfg(model, pretrained)) if pretrained else {}


def _cannot_load(model: str, pretrained: str | None, tag: Mapping[str, Any], key: str, error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0].partition(". ")[0]
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
