"""Models on the Hugging Face hub in open_clip's layout, `hf-hub:USER/NAME`: configuration, preprocessing, weights."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import open_clip
import torch
from huggingface_hub import errors, hf_hub_download
from open_clip.constants import HF_CONFIG_NAME, HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME

from clipx.errors import UserError, one_line
from clipx.utils.hub import download_error, quiet_hub

PREFIX = "hf-hub:"
FORM = f"{PREFIX}USER/NAME"
REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)  # USER/NAME
FREE = {  # settings that may differ: position embeddings are fitted to the sizes, the others change no layer
    *("image_size", "context_length", "patch_dropout", "hf_model_pretrained", "hf_tokenizer_name", "tokenizer_kwargs"),
    *("timm_model_pretrained", "tokenizer_mode"),
}


def is_on_hub(weights: str | None) -> bool:
    """Return True for `hf-hub:...`."""
    return weights is not None and weights.startswith(PREFIX)


def load_config(weights: str, key: str) -> dict[str, Any]:
    """Return open_clip_config.json of `hf-hub:USER/NAME`: model_cfg and, if the repository has it, preprocess_cfg.

    `key` is the setting that holds `weights`. The file comes from the hub's cache if the hub cannot be reached.

    Raises UserError: not USER/NAME, no such repository, or one without a usable configuration.
    """
    repository = weights.removeprefix(PREFIX)
    if not REPOSITORY.fullmatch(repository):
        raise UserError(f"{key}={weights} must be {FORM}")
    try:
        with quiet_hub(fetching=True):
            file = Path(hf_hub_download(repository, HF_CONFIG_NAME))
        config = json.loads(file.read_text(encoding="utf-8"))
        if not {"embed_dim", "vision_cfg", "text_cfg"} <= set(config["model_cfg"]):
            raise KeyError("model_cfg needs embed_dim, vision_cfg and text_cfg")
        return dict(config)
    except Exception as error:  # the hub's client raises many types
        raise _fetch_error(f"{key}={weights}", HF_CONFIG_NAME, error) from error


def fetch_weights(weights: str, key: str) -> Path:
    """Return the file with the weights of `hf-hub:USER/NAME`, from the hub or its cache.

    Raises UserError like `load_config`, or if the repository has no weights.
    """
    load_config(weights, key)
    repository = weights.removeprefix(PREFIX)
    try:
        with quiet_hub(fetching=True):
            try:
                return Path(hf_hub_download(repository, HF_SAFE_WEIGHTS_NAME))
            except errors.EntryNotFoundError:
                return Path(hf_hub_download(repository, HF_WEIGHTS_NAME))
    except Exception as error:  # the hub's client raises many types
        raise _fetch_error(f"{key}={weights}", f"{HF_SAFE_WEIGHTS_NAME} or {HF_WEIGHTS_NAME}", error) from error


def _fetch_error(setting: str, files: str, error: Exception) -> UserError:
    repository = setting.partition(PREFIX)[2]
    if isinstance(error, errors.RepositoryNotFoundError):
        token = "if it is private or gated, ask for access on its page, then run `hf auth login` or set HF_TOKEN"
        return UserError(f"{setting}: no such repository, or no access; {token}")
    unreached = isinstance(error, errors.LocalEntryNotFoundError)  # in older versions of the hub a ValueError
    if isinstance(error, KeyError | TypeError | ValueError) and not unreached:
        return UserError(f"{setting} has no usable {files}: {one_line(error)}")
    if isinstance(error, errors.EntryNotFoundError) and not unreached:
        return UserError(f"{setting} is no model in open_clip's layout: the repository has no {files}")
    return download_error(f"{setting}: {files}", f"`hf download {repository}`", "give a local file", error)


def create_model(name: str, key: str) -> Any:
    """Return the open_clip model `hf-hub:USER/NAME` with its weights; its towers may be of any kind.

    Raises UserError like `fetch_weights`, or if open_clip cannot build the model.
    """
    fetch_weights(name, key)
    try:
        with quiet_hub(fetching=True):
            return open_clip.create_model(
                name, require_pretrained=True, pretrained_text=False, device=torch.get_default_device()
            )
    except Exception as error:  # open_clip and torch.load raise many types
        raise UserError(f"{key}={name} cannot be loaded by open_clip: {one_line(error)}") from error


def check_fits(model: str, weights: str, key: str) -> None:
    """Raise UserError if `hf-hub:USER/NAME` holds weights of other towers than the open_clip model `model`.

    Comparing the shapes of the weights would not suffice: the number of heads and the activation change no shape.
    """
    theirs = load_config(weights, key)["model_cfg"]
    if differing := _differing(theirs, open_clip.get_model_config(model)):
        raise UserError(f"{key}={weights} has other towers than open_clip:{model}: {differing}")


def _differing(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Return the first setting that differs, with both values; "" if the weights fit."""
    try:
        one, two = _flat(theirs), _flat(ours)
    except TypeError as error:  # a setting that this version of open_clip does not know
        return one_line(error)
    if theirs.get("quick_gelu") and not ours.get("quick_gelu"):
        two["quick_gelu"] = True  # the weights decide
    return next((f"{key} is {one.get(key)}, not {value}" for key, value in two.items() if one.get(key) != value), "")


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that determine the layers of the towers, with open_clip's defaults."""
    parts = {
        "vision_cfg": asdict(open_clip.CLIPVisionCfg(**config["vision_cfg"])),
        "text_cfg": asdict(open_clip.CLIPTextCfg(**config["text_cfg"])),
    }
    flat = {f"{part}.{key}": value for part, keys in parts.items() for key, value in keys.items() if key not in FREE}
    return {"embed_dim": config["embed_dim"], "quick_gelu": bool(config.get("quick_gelu")), **flat}
