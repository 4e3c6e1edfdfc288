"""The names after recipe=, data= and objective=: those of clipx, of plug-ins, and the recipes of --config-dir."""

import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from cli.settings import mistakes
from cli.settings.arguments import key_of, split_config_dir
from cli.settings.recipes import Recipe, load_recipe
from clipx.config.presets import DATA, OBJECTIVES
from clipx.errors import UserError
from clipx.utils.files import recipe_files
from clipx.utils.plugins import RECIPES, added
from clipx.utils.registry import lookup

GROUPS = ("recipe", "data", "objective")
_checked: dict[str, Recipe] = {}  # recipes whose keys were checked


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
    """Read a recipe by name. Raises UserError: an unknown recipe, an invalid file, or a key that is no setting."""
    path = lookup(recipes(), name, "recipe")
    found = load_recipe(path)
    if _checked.get(name) is not found:
        mistakes.check_recipe(name, path, found.settings)
        _checked[name] = found
    return found


def with_bases(name: str, below: tuple[str, ...] = ()) -> list[Recipe]:
    """Return a recipe and those that it starts from; `below`: the recipes that start from it.

    Raises UserError: as `recipe`, for each of them, or a recipe starts from itself.
    """
    if name in below:
        raise UserError(f"recipe={below[0]}: its defaults lead back to {name}: {' -> '.join([*below, name])}")
    found = recipe(name)
    for base in found.bases:
        lookup(recipes(), base, f"recipe={name}: defaults")
    return [found, *(other for base in found.bases for other in with_bases(base, (*below, name)))]


def sets_objective(name: str) -> bool:
    """Return True if a recipe, or one that it starts from, sets parameters of the objective."""
    return any("objective" in found.settings for found in with_bases(name))


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
