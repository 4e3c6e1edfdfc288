"""The model a run starts with: random weights, published weights, or the weights of another run (model.init)."""

from pathlib import Path
from typing import Any

from torch import Tensor

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.run import checkpoint

KEY = "model.init"


def build_model(config: RunConfig, resuming: bool = False) -> clip.ClipModel:
    """Build the model with its initial weights; a resuming run loads no weights here, its checkpoint has them.

    Raises:
        UserError: as `clip.build_model`, or model.init is no good checkpoint or one of another model.
    """
    if resuming or config.model.init is None:
        return clip.build_model(config, pretrained=not resuming)
    model = clip.build_model(config, pretrained=False)
    path = checkpoint.resolve(Path(config.model.init), KEY)
    checkpoint.verify(path)
    weights = checkpoint.read_weights(path / checkpoint.WEIGHTS)
    _check_shapes(model.state_dict(), weights, f"{KEY}={config.model.init}")
    model.load_state_dict(weights)
    return model


def source(config: RunConfig) -> dict[str, Any]:
    """Return the checkpoint of model.init and the SHA-256 of its weights, for environment.json; {} without one."""
    if config.model.init is None:
        return {}
    path = checkpoint.resolve(Path(config.model.init), KEY)
    return {"init": {"checkpoint": str(path), "sha256": checkpoint.verify(path)["sha256"][checkpoint.WEIGHTS]}}


def _check_shapes(expected: dict[str, Tensor], given: dict[str, Tensor], setting: str) -> None:
    for name in sorted(expected.keys() | given.keys()):
        here, there = (list(weights[name].shape) if name in weights else "none" for weights in (expected, given))
        if here != there:
            raise UserError(f"{setting} is of another model: {name} has shape {there} there, {here} in this run")
