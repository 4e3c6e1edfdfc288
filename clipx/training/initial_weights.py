"""The model that a run starts with: random or published weights, those of another run, or none if its own follow."""

from pathlib import Path
from typing import Any

from torch import Tensor

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.run import checkpoint

KEY = "model.init"


def model(config: RunConfig, goes_on: bool = False) -> clip.ClipModel:
    """The model of a run; `goes_on`: a checkpoint of the run's own follows, so that no weights are looked for.

    Raises:
        UserError: as `clip.build`; model.init is no good checkpoint, or one of another model.
    """
    if goes_on or config.model.init is None:
        return clip.build_model(config, pretrained=not goes_on)
    made = clip.build_model(config, pretrained=False)
    path = checkpoint.resolve(Path(config.model.init), KEY)
    checkpoint.verify(path)
    weights = checkpoint.read(path / checkpoint.WEIGHTS)
    _refuse_others(made.state_dict(), weights, f"{KEY}={config.model.init}")
    made.load_state_dict(weights)
    return made


def facts(config: RunConfig) -> dict[str, Any]:
    """For environment.json: the checkpoint of model.init and the SHA-256 of its weights."""
    if config.model.init is None:
        return {}
    path = checkpoint.resolve(Path(config.model.init), KEY)
    return {"init": {"checkpoint": str(path), "sha256": checkpoint.verify(path)["sha256"][checkpoint.WEIGHTS]}}


def _refuse_others(own: dict[str, Tensor], given: dict[str, Tensor], setting: str) -> None:
    for name in sorted(own.keys() | given.keys()):
        here, there = (list(weights[name].shape) if name in weights else "none" for weights in (own, given))
        if here != there:
            raise UserError(f"{setting} is of another model: {name} has shape {there} there, {here} in this run")
