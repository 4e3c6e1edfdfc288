"""Convert the weights and the model configuration of a run, or of several runs, to those of open_clip.

A soup is the uniform mean of the weights of several runs (Wortsman et al. 2022, arXiv 2203.05482).
"""

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
from clipx.models.temperature import TEMPERATURE_PREFIX, same_nu
from clipx.models.towers import lora
from clipx.models.towers.base import Projected
from clipx.models.towers.blocks import Before
from clipx.models.towers.open_clip_towers import weights_config
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import RunFolder
from clipx.run.initial_weights import replace_weights
from clipx.types import Inputs, Progress
from clipx.utils import plugins
from clipx.utils.hub import quiet_hub

CLOSE = 1e-5  # largest difference of embeddings due to rounding
PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")


@dataclass(frozen=True)
class OpenClipModel:
    """The settings and weights from which open_clip builds the model of a run."""

    name: str  # open_clip's name of the towers
    model_config: dict[str, Any]
    weights: dict[str, Tensor]  # with open_clip's names
    inputs: Inputs
    tau: float
    step: int
    digest: str  # SHA-256 of the run's weights; "" for a mean
    module: str  # must be imported before open_clip can build the image tower; "" if open_clip or timm has the tower
    runs: int = 1  # number of runs whose mean the weights are

    @property
    def preprocess_config(self) -> dict[str, Any]:
        """Return open_clip's preprocess_cfg: the run's preprocessing of images."""
        return {key: getattr(self.inputs, key) for key in PREPROCESSING}


def convert(places: list[Path], averaged: bool, title: str, own_preprocessing: bool) -> OpenClipModel:
    """Convert a checkpoint, or the mean of several, and check that open_clip computes the same embeddings.

    Args:
        places: checkpoint folders of runs with the same towers. Settings, step and a temperature that is not
            learned are those of the first.
        averaged: take the averaged weights of train.ema.
        title: open_clip's name of the new model.
        own_preprocessing: the export will contain preprocess_config; otherwise open_clip uses its own preprocessing.

    Raises UserError: open_clip has no model with these towers, or would embed or preprocess differently; the towers of
    the runs differ.
    """
    run = checkpoints.run_of(places[0])
    config = lora.without(RunFolder(run).load_config())
    name = _model_name(config)
    manifest, *_ = [checkpoints.verify(place) for place in places]
    model = clip.build_model(config, pretrained=False)
    _load_mean(model, places, averaged)
    model.eval()

    model_config = _model_config(config, name, model)
    target = _open_clip_model(model_config, title)
    if not own_preprocessing:
        _check_transform(model, target, name)
    text_prefix = "" if "token_embedding.weight" in target.state_dict() else "text."
    weights = _weights(model, checkpoints.progress_of(places[0], config), text_prefix)
    problem = target.load_state_dict(weights, strict=False)
    assert not problem.missing_keys and not problem.unexpected_keys, problem
    _check_embeddings(model, target, run)
    return OpenClipModel(
        name=name,
        model_config=model_config,
        weights=weights,
        inputs=model.inputs,
        tau=float((-weights["logit_scale"]).exp()),
        step=manifest["step"],
        digest=manifest["sha256"][checkpoints.chosen_weights(places[0], averaged)] if len(places) == 1 else "",
        module=_module_of_tower(model_config),
        runs=len(places),
    )


def fits_open_clip(config: RunConfig) -> bool:
    """Return True if both towers are those of one open_clip model, and all that clipx adds to them is a temperature."""
    image, text = config.model.image, config.model.text
    heads = any(tower.head != "tower" or tower.standardise for tower in (image, text))
    return image.name == text.name and image.name.startswith("open_clip:") and not (heads or config.data.features)


def whole_model(place: Path, averaged: bool) -> tuple[dict[str, Tensor], RunConfig]:
    """Return the weights of a checkpoint, with those of frozen towers, and the settings that build the model.

    They are those of clipx.models.clip.ClipModel: towers with their heads, temperature and bias.

    Raises UserError: point sets, or a frozen tower has changed since the run.
    """
    config = lora.without(RunFolder.of_checkpoint(place).load_config())
    if config.model.points.kernel != "none":
        raise UserError(f"model.points.kernel={config.model.points.kernel} cannot be exported")
    trained = clip.build_model(config)
    checkpoints.load_weights(trained, place, checkpoints.chosen_weights(place, averaged))
    image, text, data = config.model.image, config.model.text, config.data
    given = image.name.startswith("embeddings:")  # the model has no towers: it takes vectors made elsewhere
    settings = RunConfig(
        name=config.name,
        recipe=config.recipe,
        data=DataConfig(name=data.name, source=data.source, clean=data.clean, features=given),
        model=replace(
            config.model,
            image=replace(image, pretrained=_published(image)),
            text=replace(text, pretrained=_published(text)),
        ),
        temperature=config.temperature,
        train=TrainConfig(batch_size=config.train.batch_size),
    )
    if given:
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
    """Return the published tag of a tower's weights, which may set its activation; None for a local file."""
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


def _load_mean(model: clip.ClipModel, places: list[Path], averaged: bool) -> None:
    """Load the mean of the weights of several checkpoints into the model of the first one.

    Running statistics of batch norms are averaged too; integer buffers are those of the last checkpoint. The
    temperature is that of the first checkpoint, unless all runs learn it with the same parameterisation.

    `averaged`: take the averaged weights of train.ema.

    Raises UserError: the towers or inputs of a run differ from those of the first, or its weights cannot be read.
    """
    total: dict[str, Tensor] = {}
    temperatures = [RunFolder.of_checkpoint(place).load_config().temperature for place in places]
    mean_nu = all(same_nu(temperatures[0], other) for other in temperatures)
    for place in places:
        name = checkpoints.chosen_weights(place, averaged)
        weights = checkpoints.read_weights(place, name)
        if place != places[0]:
            _check_towers(model, places[0], place)
            if not mean_nu:  # the model still has the first one's temperature
                weights = replace_weights(weights, model, (TEMPERATURE_PREFIX,))
        checkpoints.set_weights(model, weights, place / name)
        for key, weight in model.state_dict().items():
            if weight.is_floating_point():
                total[key] = total.get(key, 0) + weight.double()
    model.load_state_dict(model.state_dict() | {key: weight / len(places) for key, weight in total.items()})


def _check_towers(model: clip.ClipModel, first: Path, place: Path) -> None:
    config, other_config = (lora.without(RunFolder.of_checkpoint(path).load_config()) for path in (first, place))
    other = clip.build_model(other_config, pretrained=False)
    values, others = _described(config, model), _described(other_config, other)
    for key, value in values.items():
        if others[key] != value:
            raise UserError(f"soup=: {place} has {key}={others[key]}, {first} has {value}; they must agree")
    if (repr(model.image), repr(model.text)) != (repr(other.image), repr(other.text)):
        raise UserError(f"soup=: {place} has other layers than {first}, for example another activation")


def _described(config: RunConfig, model: clip.ClipModel) -> dict[str, object]:
    names = {"model.image.name": config.model.image.name, "model.text.name": config.model.text.name}
    return names | vars(model.inputs)


def _model_name(config: RunConfig) -> str:
    """Return the name of the open_clip model that has both towers; raise UserError if there is none."""
    image, text, kernel = config.model.image, config.model.text, config.model.points.kernel
    if kernel != "none":
        raise UserError(f"model.points.kernel={kernel} cannot be exported: open_clip has no point sets")
    for key, tower in (("model.image.name", image), ("model.text.name", text)):
        if not tower.name.startswith("open_clip:"):
            raise UserError(
                f"{key}={tower.name} cannot be exported: only towers named open_clip:NAME can be{_advice(tower.name)}"
            )
    if image.name != text.name:
        raise UserError(
            f"model.image.name={image.name} with model.text.name={text.name} cannot be exported: an open_clip "
            "model has the towers of one configuration"
        )
    if not fits_open_clip(config):
        heads = "model.*.head, model.*.standardise or data.features=true"
        raise UserError(f"a model with {heads} cannot be exported: open_clip has no such heads{_advice(image.name)}")
    if _quick_gelu(image.name, image.pretrained) != _quick_gelu(text.name, text.pretrained):
        raise UserError(
            f"model.image.pretrained={image.pretrained} with model.text.pretrained={text.pretrained} cannot be "
            "exported: they have different activations (GELU, QuickGELU), and an open_clip model has one"
        )
    return image.name.partition(":")[2]


def _advice(tower: str) -> str:
    """Return the end of the message for a tower that cannot be exported: the alternative."""
    if tower.partition(":")[0] in plugins.added("TOWERS"):
        return (
            "; the tower can have such a name if the plug-in registers its model with timm, and an open_clip "
            "configuration with open_clip.add_model_config"
        )
    return "; of one run, out=FILE.safetensors is a file for evaluation.embedding.encoder.from_file"


def _quick_gelu(name: str, pretrained: str | None) -> bool:
    """Return True if published weights use QuickGELU, which open_clip's model configuration does not record."""
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
        scale = float(model.temperature(last))
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
                f"{name} cannot be exported: the run's images have {key} {value}, open_clip would load the file "
                f"with {expected}"
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
