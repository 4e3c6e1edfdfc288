"""Convert the weights and the model configuration of a run to those of open_clip, or to one file that clipx loads."""

import json
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import open_clip
import timm
import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.config.schema import DataConfig, RunConfig, TowerConfig, TrainConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.towers import lora
from clipx.models.towers.base import Projected
from clipx.models.towers.blocks import Before
from clipx.models.towers.open_clip_towers import weights_config
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import RunFolder
from clipx.types import Inputs, Progress
from clipx.utils.hub import quiet_hub

CLOSE = 1e-5  # largest difference of embeddings due to rounding
PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")
INSTEAD = "out=FILE.safetensors exports one run as a file for evaluation.embedding.encoder.from_file"


@dataclass(frozen=True)
class OpenClipModel:
    """The settings and weights from which open_clip builds the model of a run."""

    model_config: dict[str, Any]
    weights: dict[str, Tensor]  # with open_clip's names
    module: str  # must be imported before open_clip can build the image tower; "" if open_clip or timm has the tower


def convert(place: Path, averaged: bool, title: str) -> OpenClipModel:
    """Convert a checkpoint, and check that open_clip computes the same embeddings.

    Args:
        place: checkpoint folder.
        averaged: take the averaged weights of train.ema.
        title: open_clip's name of the new model.

    Raises UserError: open_clip has no model with these towers, or would embed or preprocess differently.
    """
    run = checkpoints.run_of(place)
    config = lora.without(RunFolder(run).load_config())
    name = _model_name(config)
    model = clip.build_model(config, pretrained=False)
    checkpoints.load_weights(model, place, checkpoints.chosen_weights(place, averaged))
    model.eval()

    model_config = _model_config(config, name, model)
    target = _open_clip_model(model_config, title)
    _check_transform(model, target, name)
    text_prefix = "" if "token_embedding.weight" in target.state_dict() else "text."
    weights = _weights(model, checkpoints.progress_of(place, config), text_prefix)
    problem = target.load_state_dict(weights, strict=False)
    assert not problem.missing_keys and not problem.unexpected_keys, problem
    _check_embeddings(model, target, run)
    return OpenClipModel(model_config, weights, _module_of_tower(model_config))


def fits_open_clip(config: RunConfig) -> bool:
    """Return True if open_clip has the model: both towers of one of its models, without heads or stored features."""
    image, text = config.model.image, config.model.text
    heads = any(tower.head != "tower" or tower.standardise for tower in (image, text))
    return image.name == text.name and image.name.startswith("open_clip:") and not (heads or config.data.features)


def whole_model(place: Path, averaged: bool) -> tuple[dict[str, Tensor], RunConfig]:
    """Return the weights of a checkpoint, with those of frozen towers, and the settings that build the model.

    The weights have the names of clipx.models.clip.ClipModel: towers with their heads, temperature, bias.

    Raises UserError: point sets, or a frozen tower has changed since the run.
    """
    config = lora.without(RunFolder.of_checkpoint(place).load_config())
    if config.model.points.kernel != "none":
        raise UserError(f"model.points.kernel={config.model.points.kernel} cannot be exported")
    trained = clip.build_model(config)
    checkpoints.load_weights(trained, place, checkpoints.chosen_weights(place, averaged))
    image, text, data = config.model.image, config.model.text, config.data
    from_vectors = image.name.startswith("embeddings:")  # the model has no towers: it takes vectors made elsewhere
    settings = RunConfig(
        name=config.name,
        recipe=config.recipe,
        data=DataConfig(name=data.name, source=data.source, clean=data.clean, features=from_vectors),
        model=replace(
            config.model,
            image=replace(image, pretrained=_published(image)),
            text=replace(text, pretrained=_published(text)),
        ),
        temperature=config.temperature,
        train=TrainConfig(batch_size=config.train.batch_size),
    )
    if from_vectors:
        return {name: tensor.detach().contiguous() for name, tensor in trained.state_dict().items()}, settings
    whole = clip.build_model(settings, pretrained=False)
    for side, tower in trained.frozen_towers.items():
        module: Any = getattr(whole, side)
        body = module.body if isinstance(module, Projected) else module
        stored = tower.body.body if isinstance(tower.body, Before) else tower.body
        body.load_state_dict(stored.state_dict())
    weights = whole.state_dict() | trained.state_dict()
    whole.load_state_dict(weights)
    _check_whole(trained.eval(), whole.eval())
    return {name: tensor.detach().contiguous() for name, tensor in weights.items()}, settings


def _published(tower: TowerConfig) -> str | None:
    """Return the published tag of a tower's weights, by which its activation is known; None for a local file."""
    return None if tower.pretrained is None or Path(tower.pretrained).exists() else tower.pretrained


@torch.no_grad()
def _check_whole(trained: clip.ClipModel, whole: clip.ClipModel) -> None:
    """Check that both models embed a random image and text alike."""
    for side, batch in _random_pairs(whole.inputs).items():
        tower = trained.frozen_towers.get(side)
        features = batch if tower is None else tower(batch, torch.device("cpu"))
        ours, theirs = (getattr(model, f"encode_{side}") for model in (trained, whole))
        assert torch.allclose(ours(features), theirs(batch), atol=CLOSE), side


def _random_pairs(inputs: Inputs) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "image": torch.randn(2, 3, inputs.image_size, inputs.image_size, generator=generator),
        "text": torch.randint(1, 100, (2, inputs.context_length), generator=generator),  # all vocabularies are larger
    }


def _model_name(config: RunConfig) -> str:
    """Return the name of the open_clip model that has both towers; raise UserError if there is none."""
    image, text, kernel = config.model.image, config.model.text, config.model.points.kernel
    if kernel != "none":
        raise UserError(f"model.points.kernel={kernel} cannot be exported: open_clip has no point sets")
    for key, tower in (("model.image.name", image), ("model.text.name", text)):
        if not tower.name.startswith("open_clip:"):
            raise UserError(f"{key}={tower.name} cannot be exported, only towers named open_clip:NAME; {INSTEAD}")
    if image.name != text.name:
        raise UserError(
            f"model.image.name={image.name} with model.text.name={text.name} cannot be exported: an open_clip "
            "model has the towers of one configuration"
        )
    if not fits_open_clip(config):
        heads = "model.*.head, model.*.standardise or data.features=true"
        raise UserError(f"a model with {heads} cannot be exported: open_clip has no such heads; {INSTEAD}")
    if _quick_gelu(image.name, image.pretrained) != _quick_gelu(text.name, text.pretrained):
        raise UserError(
            f"model.image.pretrained={image.pretrained} with model.text.pretrained={text.pretrained} cannot be "
            "exported: they have different activations (GELU, QuickGELU), and an open_clip model has one"
        )
    return image.name.partition(":")[2]


def _quick_gelu(name: str, pretrained: str | None) -> bool:
    """Return True if published weights use QuickGELU: open_clip records that with the tag, not with the model."""
    return bool(weights_config(name.partition(":")[2], pretrained).get("quick_gelu", False))


def _model_config(config: RunConfig, name: str, model: clip.ClipModel) -> dict[str, Any]:
    """Return open_clip's configuration with this run's changes."""
    model_config: dict[str, Any] = open_clip.get_model_config(name)
    if _quick_gelu(config.model.image.name, config.model.image.pretrained):
        model_config["quick_gelu"] = True
    model_config["vision_cfg"]["image_size"] = model.inputs.image_size
    if model_config["text_cfg"].get("context_length", 77) != model.inputs.context_length:
        model_config["text_cfg"]["context_length"] = model.inputs.context_length
    if "bias" in model.state_dict():
        model_config["init_logit_bias"] = float(model.state_dict()["bias"])
    return model_config


def _open_clip_model(model_config: dict[str, Any], name: str) -> Any:
    """Return open_clip's model of a configuration; the configuration is written to a temporary folder only."""
    with tempfile.TemporaryDirectory() as folder, quiet_hub(fetching=False):
        config_file = Path(folder) / f"{name}.json"
        config_file.write_text(json.dumps(model_config))
        open_clip.add_model_config(config_file)
        return open_clip.create_model(name).eval()


def _module_of_tower(model_config: dict[str, Any]) -> str:
    name = str(model_config["vision_cfg"].get("timm_model_name", ""))
    module: str = timm.models.model_entrypoint(name).__module__ if timm.models.is_model(name) else ""
    return "" if module.partition(".")[0] == "timm" else module


def _weights(model: clip.ClipModel, last: Progress, text_prefix: str) -> dict[str, Tensor]:
    """Return the state dict with open_clip's names; some models of open_clip have no prefix for the text tower."""
    weights = {f"visual.{key}": value for key, value in model.image.state_dict().items()}
    weights |= {f"{text_prefix}{key}": value for key, value in model.text.state_dict().items()}
    with torch.no_grad():
        scale = float(model.temperature(last))  # 1/tau
    weights["logit_scale"] = torch.tensor(math.log(scale))
    if "bias" in model.state_dict():
        weights["logit_bias"] = model.state_dict()["bias"]
    return {key: value.detach().contiguous() for key, value in weights.items()}


def _check_transform(model: clip.ClipModel, target: Any, name: str) -> None:
    """Raise UserError if open_clip would preprocess images differently; open_clip would not warn."""
    loaded = open_clip.get_model_preprocess_cfg(target)
    for key in PREPROCESSING:
        value, expected = getattr(model.inputs, key), loaded[key]
        if value != (tuple(expected) if isinstance(value, tuple) else expected):
            raise UserError(
                f"{name} cannot be exported: the run preprocesses images with {key}={value}, but "
                f"open_clip with {expected}"
            )


@torch.no_grad()
def _check_embeddings(model: clip.ClipModel, target: Any, run: Path) -> None:
    """Raise UserError if open_clip's embeddings differ, for example because the run does not normalise."""
    for side, batch in _random_pairs(model.inputs).items():
        ours, theirs = (getattr(one, f"encode_{side}")(batch) for one in (model, target))
        difference = float((ours - F.normalize(theirs, dim=-1)).abs().max())
        if difference > CLOSE:
            raise UserError(
                f"{run} cannot be exported: open_clip's {side} embeddings, which have unit length, "
                f"would differ from the run's by up to {difference:.2g}"
            )
