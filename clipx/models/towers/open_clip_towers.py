"""Towers of open_clip, with the configurations of clipx in configs/ (mini-48, micro-48, ...), and their weights."""

import pickle
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import open_clip
import torch
from torch import Tensor, nn

from clipx import distributed
from clipx.config.schema import TowerConfig
from clipx.errors import UserError, one_line
from clipx.models.towers import (
    hub_weights,
    small_cnn,  # noqa: F401  (registers image towers of configs/ in timm)
)
from clipx.models.towers.base import ImageTower, TextTower, split_kind
from clipx.models.towers.positions import fit_positions
from clipx.types import Inputs, Pixels, Tokens
from clipx.utils.hub import download_error, quiet_hub
from clipx.utils.registry import did_you_mean
from clipx.utils.trust import without_objects

LONGEST = 200  # characters of a reason in a message
LFS = b"version https://git-lfs"
PREFIXES = ("_orig_mod.", "model.")  # of torch.compile, and of a module that holds the model; open_clip removes module.
BIG_VISION = (".npz", ".npy")  # files that open_clip converts itself
open_clip.add_model_config(Path(__file__).parent / "configs")


def tower_names() -> tuple[str, ...]:
    """Return all names `open_clip:NAME`, with the configurations in configs/ and those added by plug-ins."""
    # from version 4 on, open_clip also lists models for audio and for writing texts
    towers, models = {"vision_cfg", "text_cfg"}, open_clip.list_models()
    return tuple(f"open_clip:{name}" for name in models if towers <= {*open_clip.get_model_config(name)})


def describe(name: str) -> str:
    """Return image size, embedding width and context length of `open_clip:NAME`, from its configuration."""
    config = open_clip.get_model_config(name.partition(":")[2])
    vision, text = config["vision_cfg"], config["text_cfg"]
    return f"{vision.get('image_size', 224)} px, E {config['embed_dim']}, {text.get('context_length', 77)} tokens"


def parse_name(name: str, key: str) -> str:
    """Return NAME of `open_clip:NAME`. Raises UserError with `key` and the nearest names for an unknown name."""
    _, model = split_kind(name, ["open_clip"], key)
    if name not in tower_names():
        near = did_you_mean(name, tower_names())
        raise UserError(f"{key}={name} is not known; {near}`clipx ls towers` lists all {len(tower_names())}")
    return model


def check_weights(model: str, pretrained: str | None, key: str) -> None:
    """Raise UserError if `pretrained` is neither a published tag, nor a file, nor a fitting model `hf-hub:USER/NAME`.

    Downloads nothing but the configuration of a model on the hub.
    """
    if pretrained and hub_weights.is_on_hub(pretrained):
        hub_weights.check_fits(model, pretrained, key)
    elif pretrained and not weights_config(model, pretrained) and not Path(pretrained).is_file():
        tags = open_clip.list_pretrained_tags_by_model(model)
        known = f"published for {model}: {', '.join(tags)}" if tags else f"none is published for {model}"
        raise UserError(f"{key}={pretrained} is neither published weights nor a file, nor {hub_weights.FORM}; {known}")


def create_model(
    model: str,
    pretrained: str | None,
    key: str,
    custom_text: bool,
    load: bool = True,
    image_size: int | None = None,
    context_length: int | None = None,
) -> nn.Module:
    """Create the open_clip model `model` (a name without `open_clip:`), with a separate text tower if `custom_text`.

    `pretrained` is a published tag, a local file, `hf-hub:USER/NAME` or None; `key` is the setting that holds it.
    `load=False` skips the weights, for loading a checkpoint afterwards. The activation still follows the tag; for a
    model on the hub, activation and sizes follow the hub. If `image_size` or `context_length` differs from that of the
    weights, position embeddings are fitted (clipx.models.towers.positions).

    Raises UserError for weights that are neither published nor a file, cannot be downloaded, or do not fit.
    """
    on_hub = hub_weights.is_on_hub(pretrained)
    if load or on_hub:
        check_weights(model, pretrained, key)
    trained = weights_config(model, pretrained)
    file = str(hub_weights.fetch_weights(pretrained, key)) if pretrained and on_hub and load else pretrained
    shape = open_clip.get_model_config(model)
    own = (
        trained.get("image_size") or shape["vision_cfg"].get("image_size", 224),
        trained.get("context_length") or shape["text_cfg"].get("context_length", 77),
    )
    sizes = image_size or own[0], context_length or own[1]
    try:
        with quiet_hub(fetching=bool(trained) and load and not on_hub):
            if not (load and file):
                return _create(model, None, trained, custom_text, sizes)
            return _load(model, file, trained, custom_text, sizes, own)
    except UserError:
        raise
    except Exception as error:  # the hub client and torch.load raise many types
        if pretrained is None or not load:
            raise
        raise _load_error(f"{key}={pretrained}", model, {} if on_hub else trained, error) from error


Sizes = tuple[int, int]  # image size, context length


def _load(model: str, file: str, trained: dict[str, Any], custom_text: bool, sizes: Sizes, own: Sizes) -> nn.Module:
    """Create the model at `sizes` with the weights of a tag or file.

    `own`: the sizes stated with published weights, else those of the model's configuration.
    """
    is_local = Path(file).is_file()
    shown = _settings_of(read_weights(file)) if is_local else {}
    if is_local and not trained and f"{model}-quickgelu" in open_clip.list_models() and distributed.rank() == 0:
        print(f"{file}: weights trained with QuickGELU, as OpenAI's, need open_clip:{model}-quickgelu", file=sys.stderr)
    length = shown.pop("context_length", own[1])  # for another length open_clip would interpolate the positions
    trained = trained | shown
    size = sizes[0]
    try:
        loaded = _create(model, file, trained, custom_text, (size, length))
    except RuntimeError as error:  # open_clip resamples only the positions of its own vision transformers
        if "size mismatch" not in str(error) or size == own[0]:
            raise
        size = own[0]
        loaded = _create(model, file, trained, custom_text, (size, length))
    if (size, length) == sizes:
        return loaded
    fitting = _create(model, None, trained, custom_text, sizes)
    try:
        fitting.load_state_dict(fit_positions(loaded.state_dict(), fitting.state_dict()))
    except RuntimeError as error:
        raise UserError(f"the weights {file} only fit {model}'s own image size, {own[0]}") from error
    return fitting


def _create(model: str, file: str | None, trained: dict[str, Any], custom_text: bool, sizes: Sizes) -> nn.Module:
    """Call open_clip, without weights if `file` is None."""
    bias = {"init_logit_bias": trained["init_logit_bias"]} if trained.get("init_logit_bias") is not None else {}
    with warnings.catch_warnings(), without_objects():
        warnings.simplefilter("ignore")
        return open_clip.create_model(  # type: ignore[no-any-return]
            model,
            pretrained=file,
            force_custom_text=custom_text,
            # the activation the weights were trained with, even if the configuration has another
            force_quick_gelu=bool(trained.get("quick_gelu", False)),
            force_image_size=sizes[0],
            force_context_length=sizes[1],
            pretrained_text=False,
            device=torch.get_default_device(),
            **bias,
        )


def read_weights(file: str) -> dict[str, Tensor]:
    """Return the tensors of a file, or of its entry `state_dict`, by name without `module.`; {} for big_vision's files.

    Raises UserError: a Git LFS pointer, a pickled module, names with a prefix, or not a file of weights.
    """
    path = Path(file)
    if path.suffix in BIG_VISION:
        return {}
    with path.open("rb") as opened:
        if opened.read(len(LFS)) == LFS:
            raise UserError(f"{file} is a Git LFS pointer, not the weights: run `git lfs pull` in its folder")
    try:
        with warnings.catch_warnings(action="ignore"), without_objects():  # of torch, about the pickle protocol
            found: Any = open_clip.factory.load_state_dict(file)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{file} holds Python objects, such as a whole module, which are not loaded because loading them runs "
            "code: save module.state_dict() instead"
        ) from error
    except Exception as error:  # torch.load and safetensors raise many types
        raise UserError(f"{file} cannot be read as weights: {one_line(error)}") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{file} holds other values than tensors: save module.state_dict()")
    for prefix in PREFIXES:
        if found and all(name.startswith(prefix) for name in found):
            raise UserError(f"{file}: all names start with {prefix}: save the state_dict() of the module inside")
    return found


def _settings_of(weights: dict[str, Tensor]) -> dict[str, Any]:
    """Return the settings of a model that its weights show: context_length and init_logit_bias, each if known."""
    found: dict[str, Any] = {}
    for name in ("text.positional_embedding", "positional_embedding"):
        if name in weights:
            found["context_length"] = len(weights[name])
    if "logit_bias" in weights:
        found["init_logit_bias"] = float(weights["logit_bias"].flatten()[0])
    return found


def _load_error(setting: str, model: str, tag: dict[str, Any], error: Exception) -> UserError:
    if not tag:
        reason = one_line(error).partition(". ")[0]  # names all missing tensors
        return UserError(f"{setting} does not hold weights of {model}: {textwrap.shorten(reason, LONGEST)}")
    repository = str(tag.get("hf_hub", "")).rstrip("/")
    command = f"`hf download {repository}`" if repository else f"a download of {tag.get('url')}"
    return download_error(setting, command, "give a local file instead of the tag", error)


def build_open_clip_towers(
    config: TowerConfig, key: str, load: bool, image_size: int | None = None, context_length: int | None = None
) -> tuple[ImageTower, TextTower]:
    """Build both towers of a model. `key` is the setting that holds `config`, for error messages."""
    model_name = parse_name(config.name, f"{key}.name")
    shape = open_clip.get_model_config(model_name)
    if "multimodal_cfg" in shape:
        raise UserError(f"{key}.name={config.name} is a captioning model: it can be evaluated, but not trained")
    weights = config.pretrained
    model: Any = create_model(model_name, weights, f"{key}.pretrained", True, load, image_size, context_length)
    tau = float((-model.logit_scale.detach()).exp()) if weights and load else None
    return (
        ImageTower(model.visual, model.visual, shape["embed_dim"], _pixels(model, model_name, weights), tau),
        TextTower(model.text, model.text, shape["embed_dim"], Tokens(model_name, model.context_length), tau),
    )


def create_whole_model(name: str, key: str) -> tuple[nn.Module, Inputs]:
    """Return the model `open_clip:NAME/TAG`, `.../FILE`, `.../random` (seed 0) or `hf-hub:USER/NAME`, and its inputs.

    Raises UserError like `parse_weights` and `create_model`; `key` is the setting that holds `name`.
    """
    model_name, weights = parse_weights(name, key)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if weights == name:
            model = hub_weights.create_model(name, key)
        else:
            model = create_model(model_name, weights, key, custom_text=False)
    # the preprocessing of the published weights if there are any, else that of the tower's configuration
    pixels = _pixels(model, model_name, weights)
    return model, Inputs(**vars(pixels), tokenizer=model_name, context_length=model.context_length)


def parse_weights(name: str, key: str) -> tuple[str, str | None]:
    """Split `open_clip:NAME/TAG_OR_FILE` into open_clip's model name and the tag or file; None for `/random`.

    `hf-hub:USER/NAME` is returned twice, as name and as weights.

    Raises UserError for an unknown name, missing or unknown weights, or an unknown repository.
    """
    if hub_weights.is_on_hub(name):
        hub_weights.load_config(name, key)
        return name, name
    matching = [known for known in tower_names() if f"{name}/".startswith(f"{known}/")]
    known = max(matching, key=len, default="")
    weights = name[len(known) + 1 :]
    model_name = parse_name(known or name.partition("/")[0], key)
    if not weights:
        raise UserError(
            f"{key}={name} names no weights: add a published tag or a file, as in {name}/TAG; {name}/random has random "
            "weights"
        )
    if weights == "random":
        return model_name, None
    check_weights(model_name, weights, key)
    return model_name, weights


def _pixels(model: Any, name: str, pretrained: str | None) -> Pixels:
    pixels: dict[str, Any] = {**open_clip.get_model_preprocess_cfg(model)}
    pixels.update({k: v for k, v in weights_config(name, pretrained).items() if k in pixels and k != "size"})
    size = pixels["size"]
    return Pixels(
        image_size=size if isinstance(size, int) else size[0],
        mean=tuple(pixels["mean"]),
        std=tuple(pixels["std"]),
        interpolation=pixels["interpolation"],
        resize_mode=pixels["resize_mode"],
    )


def weights_config(model: str, pretrained: str | None) -> dict[str, Any]:
    """Return settings with which published weights were trained: quick_gelu, mean, std, ...; {} for other weights.

    For a model on the hub also image_size, context_length and init_logit_bias.
    """
    if not pretrained:
        return {}
    if not hub_weights.is_on_hub(pretrained):
        return dict(open_clip.get_pretrained_cfg(model, pretrained))
    config = hub_weights.load_config(pretrained, "pretrained")
    shape = config["model_cfg"]
    return {
        **config.get("preprocess_cfg", {}),
        "quick_gelu": shape.get("quick_gelu", False),
        "init_logit_bias": shape.get("init_logit_bias"),
        "image_size": shape["vision_cfg"].get("image_size"),
        "context_length": shape["text_cfg"].get("context_length"),
    }
