"""Initial weights of a run: random, published, or those of another run (model.init).

Published weights and those of another run are start weights. The run keeps their image size, normalisation and
tokenizer: a setting that changes one of them is refused, unless model.force_inputs=true.
"""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from clipx.config.schema import PUBLISHED_PREFIXES, ModelConfig, RunConfig
from clipx.data.preprocess import tokenizer
from clipx.errors import UserError, prefixed
from clipx.models import clip
from clipx.models.frozen import set_statistics
from clipx.models.temperature import TEMPERATURE_PREFIX, same_nu
from clipx.models.towers import lora
from clipx.models.towers.positions import fit_positions
from clipx.run import checkpoint
from clipx.run.folder import RunFolder, other_checkpoint
from clipx.types import Inputs

KEY = "model.init"
FORCE = "model.force_inputs=true"
PIXELS = ("image_size", "mean", "std", "interpolation")  # fields of Inputs that training images depend on
SAMPLE_TEXTS = (  # equal token ids for these texts mean equal tokenizers
    "a photo of two large RED circles, top left!",
    "naïve café – 12 dogs' toys; e.g. <b>x</b>",
    " ".join(["a long caption"] * 60),
)


def build_initial_model(
    config: RunConfig, resuming: bool = False, statistics: Mapping[str, tuple[Tensor, Tensor]] | None = None
) -> clip.ClipModel:
    """Build the model with random weights, published weights, or the weights of another run (model.init).

    `statistics`: mean and standard deviation of the training features by side, for model.SIDE.standardise; a run from
    model.init keeps those of its start weights. With `resuming`, no start weights are loaded: the run's checkpoint has
    its weights.

    Raises UserError like `clip.build_model`, and also if model.init is not a good checkpoint or is of another model, or
    if the run has other inputs than the start weights.
    """
    if resuming:
        return clip.build_model(config, pretrained=False)
    if config.model.init is not None:
        return _from_run(config, config.model.init)
    model = clip.build_model(config)
    for side, (mean, deviation) in (statistics or {}).items():
        set_statistics(getattr(model, side), mean, deviation)
    image = config.model.image
    if image.pretrained and image.size and not config.model.force_inputs:
        own = _without_weights(replace(config, model=replace(config.model, image=replace(image, size=None)))).inputs
        if own.image_size != image.size:
            raise UserError(
                f"model.image.size={image.size}: the weights model.image.pretrained={image.pretrained} take "
                f"{own.image_size} pixels; leave model.image.size out, or set {FORCE}"
            )
    return model


def weights_source(config: RunConfig, key: str) -> dict[str, Any]:
    """Return `key` (init or teacher) -> checkpoint and SHA-256 of its weights, for environment.json.

    Return {} if this setting, model.init or model.teacher, names no run.
    """
    name = {"init": config.model.init, "teacher": config.model.teacher}[key]
    if name is None or name.startswith(PUBLISHED_PREFIXES):
        return {}
    path = other_checkpoint(config, f"model.{key}", name)
    digests = checkpoint.verify(path, checkpoint.WEIGHTS)["sha256"]
    return {key: {"checkpoint": str(path), "sha256": digests[checkpoint.WEIGHTS]}}


def check_same_inputs(setting: str, theirs: Inputs, ours: Inputs, remedy: str) -> None:
    """Raise UserError if a model would get other pixels or tokens in this run than it expects.

    `setting` names that model in the message; the message ends with `remedy`.
    """
    for key in PIXELS:
        expected, given = vars(theirs)[key], vars(ours)[key]
        if expected != given:
            raise UserError(f"{setting} takes images with {key}={expected}, this run has {given}; {remedy}")
    if theirs == ours:
        return
    token_ids = [tokenizer.build_tokenizer(inputs)(list(SAMPLE_TEXTS)) for inputs in (theirs, ours)]
    if not torch.equal(*token_ids):  # also False if the lengths differ
        there, here = (f"{i.tokenizer}, {i.context_length} tokens, clean={i.clean}" for i in (theirs, ours))
        raise UserError(f"{setting} reads tokens of {there}, this run has {here}; {remedy}")


def _from_run(config: RunConfig, name: str) -> clip.ClipModel:
    """Build the model with the weights of another run; position embeddings are fitted to this run's sizes."""
    if (plain := lora.without(config)) != config:  # adapters are new, those of the other run are in its weights
        adapted, given = clip.build_model(config, pretrained=False), _from_run(plain, name).state_dict()
        own = adapted.state_dict()
        given |= {name: given[lora.merged_name(name)] for name in lora.adapted(own)}
        adapted.load_state_dict({name: given.get(name, value) for name, value in own.items()})
        return adapted
    model = clip.build_model(config, pretrained=False)
    path = other_checkpoint(config, KEY, name)
    checkpoint.verify(path, checkpoint.WEIGHTS)
    other = lora.without(RunFolder.of_checkpoint(path).load_config())
    same = _tower_settings(other.model) == _tower_settings(config.model)
    start = model if same else _without_weights(other)
    for side in ("image", "text"):
        there, here = (getattr(each, side).name for each in (other.model, config.model))
        if there != here and set(start.state_dict()) != set(model.state_dict()):
            raise UserError(f"{KEY}={name} is of another model: model.{side}.name is {there} there, {here} in this run")
    if not (same or config.model.force_inputs):
        kept = replace(start.inputs, context_length=model.inputs.context_length, clean=model.inputs.clean)
        check_same_inputs(f"{KEY}={name}", kept, model.inputs, f"set {FORCE}")
    weights = _replace_temperature_and_bias(checkpoint.read_weights(path), model, config, other)
    weights = fit_positions(weights, model.state_dict())
    checkpoint.check_towers(model, path)
    with prefixed(f"{KEY}={name}"):
        checkpoint.set_weights(model, weights, path / checkpoint.WEIGHTS)
    model.temperature.clamp_()  # this run may have other bounds
    for side, theirs, ours in (("image", start.image, model.image), ("text", start.text, model.text)):
        if repr(theirs) != repr(ours):  # the shapes are equal, but for example not the activation
            towers = map(attrgetter(side), (other.model, config.model))
            there, here = (f"{tower.name} with pretrained={tower.pretrained}" for tower in towers)
            raise UserError(f"{KEY}={name} has other layers: model.{side} is {there} there, {here} in this run")
    return model


def _replace_temperature_and_bias(
    weights: dict[str, Tensor], model: clip.ClipModel, config: RunConfig, start: RunConfig
) -> dict[str, Tensor]:
    """Return the start weights; a temperature or bias that does not continue is replaced by the run's own.

    The temperature continues if both runs learn it with the same parameterisation; a fixed tau is a setting of the run.
    The bias continues if both runs have one.
    """
    ours, theirs = config.temperature, start.temperature
    own: tuple[str, ...] = () if same_nu(ours, theirs) else (TEMPERATURE_PREFIX,)
    own += () if (ours.bias is None) == (theirs.bias is None) else ("bias",)
    kept = {key: value for key, value in weights.items() if not key.startswith(own)}
    return kept | {key: value for key, value in model.state_dict().items() if key.startswith(own)}


def _tower_settings(model: ModelConfig) -> list[object]:
    """Return the settings that determine inputs and layers of both towers."""
    image, text = model.image, model.text
    return [image.name, image.pretrained, image.size, text.name, text.pretrained, text.context_length]


def _without_weights(config: RunConfig) -> clip.ClipModel:
    with torch.random.fork_rng(devices=[]):  # the run's random draws stay as they are
        return clip.build_model(config, pretrained=False)
