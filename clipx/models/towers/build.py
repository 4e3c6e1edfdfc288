"""Builds towers by name, `KIND:NAME`. Each kind except `small` is a library, whose models are used unchanged."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from clipx.config.schema import ImageTowerConfig, ModelConfig, TextTowerConfig, TowerConfig
from clipx.errors import UserError, one_line
from clipx.models.towers import hf_towers, open_clip_towers, small_towers, timm_towers
from clipx.models.towers.base import ImageTower, InputsT, MlpHead, Projected, Standardise, TextTower, Tower, split_kind
from clipx.models.towers.hub_weights import is_on_hub
from clipx.models.towers.open_clip_towers import build_open_clip_towers
from clipx.utils import plugins


class TowerKind(NamedTuple):
    """Functions that build the image and the text towers of a kind; None if the kind has no such towers.

    Arguments of each: the tower's settings, the embedding width E (None if not set), True to load published weights.
    """

    image: Callable[[ImageTowerConfig, int | None, bool], ImageTower] | None = None
    text: Callable[[TextTowerConfig, int | None, bool], TextTower] | None = None


def _no_tower(config: TowerConfig, embed_dim: int | None, load: bool) -> Any:
    """Raise UserError: vectors made elsewhere are features, and no tower is built for them (clipx.models.frozen)."""
    raise UserError(f"{config.name} needs data=embeddings, data.features=true and both towers frozen")


TOWERS: dict[str, TowerKind] = {  # kind, the part of a tower's name before the colon
    "open_clip": TowerKind(
        lambda config, E, load: build_open_clip_towers(config, "model.image", load, config.size)[0],
        lambda config, E, load: build_open_clip_towers(
            config, "model.text", load, context_length=config.context_length
        )[1],
    ),
    "timm": TowerKind(image=timm_towers.build_timm_tower),
    "hf": TowerKind(text=hf_towers.build_hf_tower),
    "small": TowerKind(small_towers.build_image_tower, small_towers.build_text_tower),
    "embeddings": TowerKind(_no_tower, _no_tower),
}


def build_towers(
    model: ModelConfig, load: bool, image: ImageTower | None = None, text: TextTower | None = None
) -> tuple[ImageTower, TextTower]:
    """Build both towers of a run; `load=False` skips published weights, for loading a checkpoint afterwards.

    `image`, `text`: towers to use instead of building them, as `clipx.models.frozen` makes them.

    Raises UserError for unknown towers, missing weights, unsupported settings or different widths.
    """
    for side in ("image", "text"):
        _builder(model, side)  # check both names before a tower is loaded
    same = model.image.name == model.text.name and model.image.pretrained == model.text.pretrained
    unset = image is None and text is None
    if same and unset and model.image.name.startswith("open_clip:"):  # one model gives both towers
        size, length = model.image.size, model.text.context_length
        image, text = build_open_clip_towers(model.image, "model.image", load, size, length)
        _check_image_size(model.image, image)
    image = image or build_tower(model, "image", load)
    text = text or build_tower(model, "text", load)
    _set_head(image, model.image, model.embed_dim)
    _set_head(text, model.text, model.embed_dim)
    _check_widths(model, image, text)
    has_projection = model.points.kernel != "none" or any(t.module is not t.body for t in (image, text))
    if model.projection_lr_factor != 1 and not has_projection:
        raise UserError(
            f"model.projection_lr_factor={model.projection_lr_factor} has no effect: only timm:, hf:, small:conv, "
            "small:bag and small:clip_bag towers, and towers with a head or point sets, have a separate projection, "
            f"not {model.image.name} and {model.text.name}"
        )
    return image, text


def _set_head(tower: Tower[InputsT], config: TowerConfig, embed_dim: int | None) -> None:
    """Give a tower the head and the standardisation of its settings, in place. `embed_dim`: model.embed_dim."""
    if config.head == "tower" and not config.standardise:
        return
    tower.tau = None  # the published one suits the published projection
    if not isinstance(tower.module, Projected):  # a tower that has its own projection
        tower.body, tower.embed_dim, width = tower.module, embed_dim or tower.embed_dim, tower.embed_dim
        tower.module = Projected(tower.body, width, tower.embed_dim)
    projection = tower.module.projection
    assert isinstance(projection, nn.Linear)
    width, E = projection.in_features, projection.out_features
    if config.head == "mlp":
        projection = MlpHead(width, config.head_width, E, config.head_dropout, config.head_linear)
    tower.module.projection = nn.Sequential(Standardise(width), projection) if config.standardise else projection


def build_tower(model: ModelConfig, side: str, load: bool) -> Tower[Any]:
    """Build the image tower or the text tower (`side`), without its head. Raises UserError like `build_towers`."""
    tower: Tower[Any] = _builder(model, side)(getattr(model, side), model.embed_dim, load)
    if side == "image":
        _check_image_size(model.image, tower)
    return tower


def _builder(model: ModelConfig, side: str) -> Callable[..., Any]:
    """Return the function that builds a side's tower. Raises UserError: unknown, or weights of another kind."""
    key, tower = f"model.{side}", getattr(model, side)
    if is_on_hub(tower.pretrained) and not tower.name.startswith("open_clip:"):
        raise UserError(
            f"{key}.pretrained={tower.pretrained} needs a tower named open_clip:NAME, not {key}.name={tower.name}"
        )
    if side == "text" and tower.pooling is not None and not tower.name.startswith("hf:"):
        raise UserError(f"model.text.pooling={tower.pooling} needs a tower named hf:, not {tower.name}")
    builders: dict[str, Callable[..., Any]] = {
        kind: build for kind, row in TOWERS.items() if (build := getattr(row, side))
    }
    return builders[split_kind(tower.name, builders, f"{key}.name")[0]]


def _check_widths(model: ModelConfig, image: ImageTower, text: TextTower) -> None:
    names = f"model.image.name={model.image.name}", f"model.text.name={model.text.name}"
    for name, width in zip(names, (image.embed_dim, text.embed_dim), strict=True):
        if model.embed_dim is not None and width != model.embed_dim:
            raise UserError(
                f"model.embed_dim={model.embed_dim} does not fit {name}, which has width {width}: "
                "omit it, or use timm:, hf: and small: towers, which are projected to any width"
            )
    if image.embed_dim != text.embed_dim:
        raise UserError(
            f"{names[0]} embeds in {image.embed_dim} dimensions, {names[1]} in {text.embed_dim}: "
            "use towers of the same width"
        )


@torch.no_grad()
def _check_image_size(config: ImageTowerConfig, tower: ImageTower) -> None:
    """Run one image of the configured size, if one is set, through the tower. Raises UserError if that fails."""
    if config.size is None:
        return
    was_training = tower.module.training
    try:
        tower.module.eval()(torch.zeros(1, 3, config.size, config.size))
    except Exception as error:  # shapes that do not fit raise many types
        raise UserError(f"model.image.size={config.size} does not suit {config.name}: {one_line(error)}") from error
    finally:
        tower.module.train(was_training)


def describe_towers() -> dict[str, str]:
    """Return name -> description for `clipx ls towers`: small and open_clip towers, and patterns for other kinds."""
    return {
        **small_towers.describe(),
        "timm:NAME": f"{len(timm_towers.model_names())} image towers of timm, e.g. timm:resnet50; set model.embed_dim",
        "embeddings:WIDTH": "vectors made elsewhere, data=embeddings; set model.embed_dim",
        "hf:NAME_OR_FOLDER": "text towers of Hugging Face, e.g. hf:distilbert-base-uncased; set model.embed_dim",
        **{f"{kind}:NAME": "towers of a plug-in" for kind in plugins.added("TOWERS")},
        **{name: open_clip_towers.describe(name) for name in open_clip_towers.tower_names()},
    }
