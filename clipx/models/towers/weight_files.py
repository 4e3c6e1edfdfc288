"""Local files of weights: what their tensors say about the model, and why a file cannot be read."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import open_clip
from torch import Tensor

from clipx.errors import UserError, one_line

LFS = b"version https://git-lfs"
PREFIXES = ("_orig_mod.", "model.")  # of torch.compile, and of a module that holds the model; open_clip removes module.
BIG_VISION = (".npz", ".npy")  # files that open_clip converts itself


def read_file(file: str) -> dict[str, Tensor]:
    """Return the tensors of a file by name; {} for a file of big_vision.

    Raises UserError: a Git LFS pointer, a pickled module, names with a prefix, or not a file of weights.
    """
    path = Path(file)
    if path.suffix in BIG_VISION:
        return {}
    with path.open("rb") as opened:
        if opened.read(len(LFS)) == LFS:
            raise UserError(f"{file} is a Git LFS pointer, not the weights: run `git lfs pull` in its folder")
    try:
        with warnings.catch_warnings(action="ignore"):  # of torch, about the file's pickle protocol
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


def settings_of(weights: dict[str, Tensor]) -> dict[str, Any]:
    """Return the settings of a model that its weights show: context_length and init_logit_bias, each if known."""
    found: dict[str, Any] = {}
    for name in ("text.positional_embedding", "positional_embedding"):
        if name in weights:
            found["context_length"] = len(weights[name])
    if "logit_bias" in weights:
        found["init_logit_bias"] = float(weights["logit_bias"].flatten()[0])
    return found
