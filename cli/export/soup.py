"""Model soups: the uniform mean of the weights of several runs (Wortsman et al. 2022, arXiv 2203.05482)."""

from pathlib import Path

from torch import Tensor

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.temperature import TEMPERATURE_PREFIX, same_nu
from clipx.run import checkpoint as checkpoints
from clipx.run import directory
from clipx.run.initial_weights import replace_weights


def load_mean(model: clip.ClipModel, places: list[Path], averaged: bool) -> None:
    """Load the mean of the weights of several checkpoints into the model of the first one.

    Running statistics of batch norms are averaged too; integer buffers are those of the last checkpoint. The
    temperature is that of the first checkpoint, unless all runs learn it with the same parameterisation.

    `averaged`: take the averaged weights of train.ema.

    Raises UserError: the towers or inputs of a run differ from those of the first, or its weights cannot be read.
    """
    total: dict[str, Tensor] = {}
    temperatures = [directory.load_config(checkpoints.run_of(place)).temperature for place in places]
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
    config, other_config = (directory.load_config(checkpoints.run_of(path)) for path in (first, place))
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
