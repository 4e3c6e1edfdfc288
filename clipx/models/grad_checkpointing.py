"""Gradient checkpointing: activations are recomputed in the backward pass instead of stored.

Each library has its own switch, and some towers do not support it; `enable_grad_checkpointing` refuses these towers.
"""

import warnings
from collections.abc import Callable
from typing import Any

from open_clip.hf_model import HFTextEncoder
from open_clip.timm_model import TimmModel
from open_clip.transformer import TextTransformer, VisionTransformer
from torch import nn

from clipx.errors import UserError
from clipx.models.towers.base import Projected
from clipx.models.towers.hf_towers import ClassToken


def enable_grad_checkpointing(tower: nn.Module, setting: str) -> None:
    """Enable gradient checkpointing of a tower in place, before the tower is converted to point sets.

    `setting` names the tower, e.g. model.image.name=timm:resnet50. Raises UserError if the tower does not support it.
    """
    try:
        SWITCHES[type(tower)](tower)
    except (KeyError, AttributeError, AssertionError, NotImplementedError, ValueError) as error:  # not supported
        raise UserError(
            f"train.grad_checkpointing=true: {setting} does not support gradient checkpointing; open_clip's "
            "transformers do, and so do most towers of timm: and hf:"
        ) from error


def _transformers(encoder: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers 5 renames the method, 4 has only this name
        encoder.gradient_checkpointing_enable({"use_reentrant": False})  # reentrant checkpointing breaks DDP


def _projected(tower: Projected) -> None:
    body: Any = tower.body
    if type(body) is ClassToken:
        _transformers(body.encoder)
    else:
        body.set_grad_checkpointing(True)


SWITCHES: dict[type, Callable[[Any], None]] = {
    VisionTransformer: lambda tower: tower.set_grad_checkpointing(True),
    TextTransformer: lambda tower: tower.set_grad_checkpointing(True),
    TimmModel: lambda tower: tower.trunk.set_grad_checkpointing(True),
    HFTextEncoder: lambda tower: _transformers(tower.transformer),
    Projected: _projected,
}
