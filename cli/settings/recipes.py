"""Recipe files: settings, and the arms, seeds and evaluations of the experiment.

arms:                                  # NAME: overrides of this arm
  clip: []
  clip_reg: [objective=clip_reg]
seeds: 3                               # runs of each arm by `clipx reproduce`
evaluations: [[], [protocol=paper]]    # calls of `clipx eval` after each run; default: one call without overrides
scale:                                 # ladders of `clipx reproduce scale=AXIS`: axis -> values, ascending
  samples: [20000, 80000, 320000, 1280000]
  batch: [64, 128, 256, 512]
  lr: {batch: [1.0e-3, 1.4e-3, 2.0e-3, 2.8e-3]}  # learning rate of each point; default: the recipe's own
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from cli.settings.arguments import key_of
from clipx.config.ladder import AXES, MIN_POINTS
from clipx.errors import UserError
from clipx.utils.registry import lookup, one_of


@dataclass(frozen=True)
class Recipe:
    """The content of a recipe file."""

    settings: DictConfig  # fields of RunConfig
    bases: list[str]  # names of the recipes that it starts from
    objectives: list[str]  # names of the objectives that its defaults choose
    arms: dict[str, list[str]]  # name -> overrides, in the file's order
    seeds: int
    evaluations: list[list[str]]  # overrides of each call of `clipx eval`
    plugins: list[str]
    scale: dict[str, list[list[str]]]  # axis -> overrides of each point


def load_recipe(path: Path) -> Recipe:
    """Read a recipe file, from the cache if it has not changed.

    Raises UserError if the file cannot be read, the YAML is invalid, or defaults, arms, seeds, evaluations or scale do
    not have the required form.
    """
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise UserError(f"recipe {path} cannot be read: {error.strerror}") from error


@cache
def _read(path: Path, mtime_ns: int, size: int) -> Recipe:
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except OSError:
        raise
    except Exception as error:  # from yaml or OmegaConf
        raise UserError(f"recipe {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"recipe {path} holds no settings (key: value lines)")
    arms, seeds = content.pop("arms", {}), content.pop("seeds", 1)
    if not isinstance(arms, dict) or not all(_are_overrides(a) for a in arms.values()):
        raise UserError(f"recipe {path}: arms must be lines of the form NAME: [key=value, ...]")
    if not isinstance(seeds, int) or seeds < 1:
        raise UserError(f"recipe {path}: seeds={seeds} must be 1 or more")
    evaluations = content.pop("evaluations", [[]])
    if not isinstance(evaluations, list) or not all(_are_overrides(e) for e in evaluations):
        raise UserError(f"recipe {path}: evaluations must be a list of [key=value, ...]")
    scale = _scale(path, content.pop("scale", {}))
    plugins = content.get("plugins", [])
    if not isinstance(plugins, list):
        raise UserError(f"recipe {path}: plugins={plugins} must be a list of modules, [MODULE, ...]")
    named = {str(name): list(overrides) for name, overrides in arms.items()}
    return Recipe(
        OmegaConf.create(content),
        *_defaults(path, content.get("defaults", [])),
        named,
        seeds,
        evaluations,
        [str(name) for name in plugins],
        scale,
    )


def _defaults(path: Path, given: Any) -> tuple[list[str], list[str]]:
    """Return the recipes that a recipe starts from, and the objectives that it chooses.

    Raises UserError: `given` is another list. Hydra allows more, but many mistakes in it would give a traceback.
    """
    if not isinstance(given, list) or not all(isinstance(entry, str) or _is_choice(entry) for entry in given):
        raise UserError(
            f"recipe {path}: defaults={given} must be a list of recipes and choices, such as [NAME, override /data: "
            "NAME, override /objective: NAME]"
        )
    bases = [entry for entry in given if isinstance(entry, str) and entry != "_self_"]
    choices = [choice for entry in given if isinstance(entry, dict) for choice in entry.items()]
    return bases, [name for key, name in choices if key == "override /objective"]


def _is_choice(entry: Any) -> bool:
    """Return True for {override /GROUP: NAME}."""
    if not isinstance(entry, dict) or len(entry) != 1:
        return False
    (key, name), *_ = entry.items()
    return isinstance(key, str) and key.startswith("override /") and isinstance(name, str)


def _scale(path: Path, given: Any) -> dict[str, list[list[str]]]:
    """Return axis -> overrides of each point, including its learning rate if the recipe gives one."""
    if not isinstance(given, dict) or not isinstance(rates := given.pop("lr", {}), dict):
        raise UserError(f"recipe {path}: scale must be lines of the form AXIS: [VALUE, ...] and lr: {{AXIS: [...]}}")
    for axis in (*given, *rates):
        one_of(axis, AXES, f"recipe {path}: axis of scale")
    found = {}
    for axis, values in given.items():
        if not isinstance(values, list) or len(values) < MIN_POINTS:
            raise UserError(f"recipe {path}: scale.{axis}={values} must be a list of {MIN_POINTS} or more points")
        of_axis = rates.get(axis, [None] * len(values))
        if not isinstance(of_axis, list) or len(of_axis) != len(values):
            raise UserError(
                f"recipe {path}: scale.lr.{axis}={of_axis} must be a list of {len(values)} rates, one per point"
            )
        found[axis] = [
            [f"{key}={value}" for key in AXES[axis]] + ([] if rate is None else [f"optimizer.lr={rate}"])
            for value, rate in zip(values, of_axis, strict=True)
        ]
    return found


def _are_overrides(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(o, str) and "=" in o for o in given)


def expand_arm(arguments: list[str], arms: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """Insert the overrides of an arm after arm=NAME; overrides given by the user replace those of the arm.

    Returns all arguments, and the inserted overrides.

    Raises UserError: an unknown arm, or several arms.
    """
    chosen = [a.removeprefix("arm=") for a in arguments if a.startswith("arm=")]
    if not chosen:
        return arguments, []
    if len(chosen) > 1 or "," in chosen[0]:
        raise UserError(
            f"arm={','.join(chosen)} must be one name, also in a sweep: run a command per arm, or all arms and "
            "seeds with clipx reproduce recipe=NAME"
        )
    if not arms:
        raise UserError(f"arm={chosen[0]}: this recipe has no arms")
    given = {key_of(a) for a in arguments}
    inserted = [o for o in lookup(arms, chosen[0], "arm") if key_of(o) not in given]
    at = arguments.index(f"arm={chosen[0]}") + 1
    return [*arguments[:at], *inserted, *arguments[at:]], inserted
