"""Recipe files: settings, and beside them the arms of the experiment, its number of seeds and its evaluations.

arms:                                  # NAME: the overrides that make this arm
  clip: []
  clip_reg: [objective=clip_reg]
seeds: 3                               # how many `clipx reproduce` runs of each arm
evaluations: [[], [protocol=paper]]    # calls of `clipx eval` after each run; left out: one, with its defaults
"""

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from clipx.errors import UserError
from clipx.utils.registry import lookup


@dataclass(frozen=True)
class Recipe:
    """What a recipe file holds."""

    settings: DictConfig  # fields of RunConfig
    arms: dict[str, list[str]]  # name -> overrides, in the file's order
    seeds: int
    evaluations: list[list[str]]  # overrides of each call of `clipx eval`


def load(path: Path) -> Recipe:
    """Reads a recipe file.

    Raises:
        UserError: no valid YAML, or arms and seeds of another form.
    """
    try:
        settings = OmegaConf.load(path)
    except Exception as error:  # yaml's and OmegaConf's own kinds
        raise UserError(f"recipe {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(settings, DictConfig):
        raise UserError(f"recipe {path} holds no settings (key: value lines)")
    arms = OmegaConf.to_container(settings.pop("arms", OmegaConf.create({})))
    seeds = settings.pop("seeds", 1)
    if not isinstance(arms, dict) or not all(_are_overrides(a) for a in arms.values()):
        raise UserError(f"recipe {path}: arms must be lines of the form NAME: [key=value, ...]")
    if not isinstance(seeds, int) or seeds < 1:
        raise UserError(f"recipe {path}: seeds={seeds} must be 1 or more")
    evaluations = OmegaConf.to_container(settings.pop("evaluations", OmegaConf.create([[]])))
    if not isinstance(evaluations, list) or not all(_are_overrides(e) for e in evaluations):
        raise UserError(f"recipe {path}: evaluations must be a list of [key=value, ...]")
    return Recipe(settings, {str(name): list(overrides) for name, overrides in arms.items()}, seeds, evaluations)


def _are_overrides(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(o, str) and "=" in o for o in given)


def expand(arguments: list[str], arms: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """The arguments with the overrides of `arm=NAME` in its place, and these; a key given by the user wins.

    Raises:
        UserError: an unknown arm, or several.
    """
    chosen = [a.removeprefix("arm=") for a in arguments if a.startswith("arm=")]
    if not chosen:
        return arguments, []
    if len(chosen) > 1 or "," in chosen[0]:
        raise UserError(
            f"arm={','.join(chosen)} must be one name, also in a sweep: give each arm a command, or run all arms and "
            "seeds by clipx reproduce recipe=NAME"
        )
    if not arms:
        raise UserError(f"arm={chosen[0]}: this recipe has no arms")
    given = {a.partition("=")[0].lstrip("+~") for a in arguments}
    ours = [o for o in lookup(arms, chosen[0], "arm") if o.partition("=")[0].lstrip("+~") not in given]
    place = arguments.index(f"arm={chosen[0]}") + 1
    return [*arguments[:place], *ours, *arguments[place:]], ours
