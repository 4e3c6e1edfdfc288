"""Gradient checkpointing: activations are computed again in backward in place of being kept.

Every library has its own switch for it. Some towers of theirs take the switch and do nothing, or warn: here each is
either on or refused.
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
    """For a tower as its builder made it; `setting` names it, e.g. model.image.name=timm:resnet50.

    Raises:
        UserError: the tower has no such mechanism.
    """
    try:
        SWITCHES[type(tower)](tower)
    except (KeyError, AttributeError, AssertionError, NotImplementedError, ValueError) as error:  # libraries' refusals
        raise UserError(
            f"train.grad_checkpointing=true: {setting} has no gradient checkpointing; transformers of open_clip, "
            "most of timm: and hf: have"
        ) from error


def _transformers(encoder: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # version 5 gives it another name, version 4 knows this one only
        encoder.gradient_checkpointing_enable({"use_reentrant": False})  # the other kind breaks DDP


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
