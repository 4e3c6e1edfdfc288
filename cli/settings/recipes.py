"""Recipe files: settings, and the arms, seeds and evaluations of the experiment.

Also the names after recipe=, data= and objective=: those of clipx, of plug-ins, and the recipes of --config-dir.

arms:                                  # NAME: overrides of this arm
  clip: []
  clip_reg: [objective=clip_reg]
seeds: 3                               # runs of each arm by `clipx reproduce`
looks: [20]                            # numbers of seeds at which claims are judged; default: 3, 5, 8
failed_loss: 3.0                       # a run whose final loss is above it has failed; claims are about the others
evaluations: [[], [protocol=paper]]    # calls of `clipx eval` after each run; default: one call without overrides
scale:                                 # ladders of `clipx reproduce scale=AXIS`: axis -> values, ascending
  samples: [20000, 80000, 320000, 1280000]
  batch: [64, 128, 256, 512]
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from cli.settings.arguments import key_of, split_config_dir
from clipx.config.presets import DATA, OBJECTIVES
from clipx.config.schema import AXES, MIN_POINTS, RunConfig
from clipx.config.setting import MISSING, Rule, between, check, check_type, from_values, setting, suggest_key
from clipx.errors import UserError, prefixed
from clipx.utils.files import recipe_files
from clipx.utils.plugins import RECIPES, added
from clipx.utils.registry import lookup
from clipx.utils.trust import PROGRAMS, load_yaml, other_interpolation

GROUPS = ("recipe", "data", "objective")
# Settings that only the command line may give: what is written where, which code runs, and which machine is called
TYPED = ("hydra", "runs", "launch", "sets")
NOTIFY = "log.notify"  # a program
TYPED_IN_OVERRIDES = (*TYPED, "plugins", "out")  # `out` of clipx eval
OWN_RECIPES = "recipes of your own: --config-dir FOLDER"


def _are_overrides(given: list[str]) -> bool:
    return all("=" in override for override in given)


ARMS: Rule = (lambda arms: all(map(_are_overrides, arms.values())), "lines of the form NAME: [key=value, ...]")
EVALUATIONS: Rule = (lambda given: all(map(_are_overrides, given)), "a list of [key=value, ...]")
POINTS: Rule = (
    lambda given: {*given} <= {*AXES} and all(len(values) >= MIN_POINTS for values in given.values()),
    f"lines of the form AXIS: [VALUE, ...] with {MIN_POINTS} or more values; axes: {', '.join(AXES)}",
)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The keys of a recipe file that are not settings of a run."""

    arms: dict[str, list[str]] = setting({}, "overrides of each arm, in the file's order", ARMS)
    seeds: int = setting(1, "runs of each arm by `clipx reproduce`", between(1, 1000))
    evaluations: list[list[str]] = setting([[]], "overrides of each call of `clipx eval`", EVALUATIONS)
    looks: tuple[int, ...] = setting((), "numbers of seeds at which claims are judged; (): the default")
    failed_loss: float | None = setting(None, "a run whose final loss is above it has failed")
    scale: dict[str, list[Any]] = setting({}, "the values of each axis, ascending", POINTS)


@dataclass(frozen=True, kw_only=True)
class Recipe(Experiment):
    """The content of a recipe file."""

    settings: DictConfig  # fields of RunConfig
    bases: list[str]  # names of the recipes that it starts from
    objectives: list[str]  # names of the objectives that its defaults choose
    plugins: list[str]

    def points(self, axis: str) -> list[list[str]]:
        """Return the overrides of each point of a ladder."""
        return [[f"{key}={value}" for key in AXES[axis]] for value in self.scale[axis]]


def load_recipe(path: Path) -> Recipe:
    """Read a recipe file, from the cache if it has not changed.

    Raises UserError if the file cannot be read, the YAML is invalid, a setting is unknown or has another type, or
    defaults, arms, seeds, evaluations or scale do not have the required form.
    """
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise UserError(f"recipe {path} cannot be read: {error.strerror}") from error


@cache
def _read(path: Path, mtime_ns: int, size: int) -> Recipe:
    try:
        text = path.read_text(encoding="utf-8")
        content = {} if (found := load_yaml(text)) is None else found
    except OSError:
        raise
    except Exception as error:  # from yaml
        raise UserError(f"recipe {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"recipe {path} holds no settings (key: value lines)")
    with prefixed(f"recipe {path}"):
        return _recipe_of(content)


def _recipe_of(content: dict[Any, Any]) -> Recipe:
    """Return the recipe of the content of a file. Raises UserError, to which `_read` adds the name of the file."""
    _refuse_typed(content)
    given = {field.name: content.pop(field.name) for field in fields(Experiment) if field.name in content}
    experiment = from_values(Experiment, given)
    check(experiment)
    for override in (o for overrides in (*experiment.arms.values(), *experiment.evaluations) for o in overrides):
        key, _, value = override.lstrip("+~").partition("=")
        if key == NOTIFY or key.replace("/", ".").partition(".")[0] in TYPED_IN_OVERRIDES:
            raise UserError(f"{override}: {key} may only be set on the command line")
        if PROGRAMS.search(value):
            raise UserError(f"{override}: a program may only be named on the command line")
    plugins = content.get("plugins", [])
    if not isinstance(plugins, list):
        raise UserError(f"plugins={plugins} must be a list of modules, [MODULE, ...]")
    bases, chosen = _defaults(content.get("defaults", []))
    try:
        settings = OmegaConf.create(content)
    except Exception as error:  # keys and values that OmegaConf does not have
        raise UserError(f"the file is not valid YAML: {' '.join(str(error).split())}") from error
    for key, value in _values(content):
        if near := suggest_key(RunConfig, key):
            raise UserError(f"{key} is not a setting; {near}")
        if not (isinstance(value, str) and ("${" in value or value == MISSING)):  # known when the run is composed
            check_type(RunConfig, key, value)
    return Recipe(
        **vars(experiment), settings=settings, bases=bases, objectives=chosen, plugins=[str(name) for name in plugins]
    )


def _refuse_typed(content: dict[Any, Any]) -> None:
    """Raise UserError if a recipe, which may come from somebody else, has a key of TYPED or reads the environment."""
    if keys := [key for key in content if re.split(r"[./]", str(key))[0] in TYPED]:
        raise UserError(f"{keys[0]} may only be set on the command line, not by a recipe")
    if found := other_interpolation(str(content)):
        found = found[: found.find("}") + 1]  # without the rest of the recipe
        raise UserError(f"{found} may not be read; allowed: references to settings, ${{KEY}}")


def _defaults(given: Any) -> tuple[list[str], list[str]]:
    """Return the recipes that a recipe starts from, and the objectives that it chooses.

    Raises UserError: `given` is another list. Hydra allows more, but many mistakes in it would give a traceback.
    """
    bases, objectives = list[str](), list[str]()
    for entry in given if isinstance(given, list) else [None]:
        match entry:
            case str():
                bases.append(entry)
            case {"override /objective": str(name), **others} if not others:
                objectives.append(name)
            case {"override /data": str(), **others} if not others:
                pass
            case _:
                raise UserError(
                    f"defaults={given} must be a list of recipes and choices, such as [NAME, override "
                    "/data: NAME, override /objective: NAME]"
                )
    return [name for name in bases if name != "_self_"], objectives


def expand_arm(arguments: list[str], arms: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """Insert the overrides of an arm after arm=NAME; overrides given by the user replace those of the arm.

    Returns all arguments, and the inserted overrides.

    Raises UserError: an unknown arm, or several arms.
    """
    chosen = [a for a in arguments if key_of(a) == "arm"]
    if not chosen:
        return arguments, []
    name = ",".join(a.partition("=")[2] for a in chosen)
    if "," in name:
        raise UserError(
            f"arm={name} must be one name, also in a sweep: run a command per arm, or all arms and seeds with "
            "clipx reproduce recipe=NAME"
        )
    if not arms:
        raise UserError(f"arm={name}: this recipe has no arms")
    given = {key_of(a) for a in arguments}
    inserted = [o for o in lookup(arms, name, "arm") if key_of(o) not in given]
    at = arguments.index(chosen[0]) + 1
    return [*arguments[:at], *inserted, *arguments[at:]], inserted


def recipes() -> dict[str, Path]:
    """Return name -> file of the installed recipes, the recipes of plug-ins and those of --config-dir.

    Raises UserError: --config-dir is not a folder.
    """
    folders = split_config_dir(sys.argv)[0]
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise UserError(f"--config-dir={missing[0]} is not a folder")
    installed = recipe_files(Path(str(files("recipes"))))
    users = [path for folder in folders for path in recipe_files(folder)]
    found = {p.stem: p for p in installed} | added(RECIPES) | {p.stem: p for p in users}
    return {name: path for name, path in found.items() if name != "base"}


def recipe(name: str) -> Recipe:
    """Read a recipe by name. Raises UserError: an unknown recipe, an invalid file, a wrong key or type."""
    try:
        path = lookup(recipes(), name, "recipe")
    except UserError as error:
        # `make towers` writes to the second
        places = (place for place in (".", ".towers/recipes") if Path(place, f"{name}.yaml").is_file())
        own = next((f"for {name}.yaml, add --config-dir {place}" for place in places), OWN_RECIPES)
        raise UserError(f"{error}; {own}") from error
    return load_recipe(path)


def with_bases(name: str, below: tuple[str, ...] = ()) -> list[Recipe]:
    """Return a recipe, then those that it starts from. The settings of an earlier one replace those of a later one.

    `below`: the recipes that start from it.

    Raises UserError: as `recipe`, for each of them, or a recipe starts from itself.
    """
    if name in below:
        raise UserError(f"recipe={below[0]}: its defaults lead back to {name}: {' -> '.join([*below, name])}")
    found = recipe(name)
    for base in found.bases:
        lookup(recipes(), base, f"recipe={name}: defaults")
    return [found, *(other for base in reversed(found.bases) for other in with_bases(base, (*below, name)))]


def data_sets() -> dict[str, dict[str, Any]]:
    """Return name -> settings of the data sets: the presets, and the sources of plug-ins."""
    return {name: {"source": name} for name in added("SOURCES")} | DATA


def chosen_objectives(overrides: list[str]) -> list[str]:
    """Return the names after objective=, and those that the recipes after recipe= choose in their defaults."""
    names = {
        group: [name for o in overrides if key_of(o) == group for name in o.partition("=")[2].split(",")]
        for group in ("objective", "recipe")
    }
    found = [base for name in names["recipe"] if name in recipes() for base in with_bases(name)]
    return [*names["objective"], *(objective for base in found for objective in base.objectives)]


def objectives(chosen: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return name -> terms of the objectives: the presets and single terms; at least the `chosen` ones."""
    known: dict[str, dict[str, dict[str, Any]]] = {**{name: {name: {}} for name in added("TERMS")}, **OBJECTIVES}
    if all(name in known for name in chosen):
        return known
    from clipx.objectives import TERMS  # imports torch, so only for a term of the package that is not in OBJECTIVES

    return {**{name: {name: {}} for name in TERMS}, **known}


def by_group(chosen: list[str]) -> dict[str, Mapping[str, Any]]:
    """Return group -> name -> content; `chosen`: as for `objectives`."""
    return dict(zip(GROUPS, (recipes(), data_sets(), objectives(chosen)), strict=True))


def _values(settings: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the dotted keys and the values of a recipe's settings."""
    found = []
    for key, value in settings.items():
        full = f"{prefix}{key!s}"
        if isinstance(value, dict) and value:
            found += _values(value, f"{full}.")
        elif full.partition(".")[0] not in ("defaults", "hydra"):
            found.append((full, value))
    return found
