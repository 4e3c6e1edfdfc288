"""Plug-ins: modules outside the package that add rows to its tables.

`plugins=[MODULE]` names such a module. The module has one or more of the tables below, each a dict `{"name": row}`:

    TERMS = {"mine": MineTerm}

It may also have RECIPES, a folder of recipes. An installed package can instead declare rows as entry points, in the
groups `clipx.terms`, `clipx.tasks`, ... (the table's name in lower case), which are always loaded.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

from clipx.errors import UserError, one_line
from clipx.utils.files import recipe_files
from clipx.utils.trust import is_installed, is_permitted

RECIPES = "RECIPES"


class Table(NamedTuple):
    """A table that plug-ins may extend."""

    location: str  # imported only if a plug-in adds rows, because most of these modules import torch
    is_row: Callable[[Any], bool]
    row: str  # the right kind of row, in words


TABLES = {
    "TERMS": Table(
        "clipx.objectives.TERMS",
        lambda row: isinstance(row, type) and issubclass(row, _object("clipx.objectives.base.Term")),
        "a Term class",
    ),
    "OBJECTIVES": Table(
        "clipx.config.presets.OBJECTIVES",
        lambda row: isinstance(row, dict) and all(isinstance(settings, dict) for settings in row.values()),
        "a dict {TERM: {PARAMETER: VALUE}}",
    ),
    "DATA": Table("clipx.config.presets.DATA", lambda row: isinstance(row, dict), "a dict of settings data.*"),
    "SOURCES": Table("clipx.data.sources.opening.SOURCES", callable, "a function"),
    "TOWERS": Table(
        "clipx.models.towers.build.TOWERS",
        lambda row: isinstance(row, _object("clipx.models.towers.build.TowerKind")),
        "a TowerKind",
    ),
    "TEMPERATURES": Table("clipx.models.temperature.TEMPERATURES", callable, "a function"),
    "PARAMETERISATIONS": Table(
        "clipx.models.temperature.PARAMETERISATIONS",
        lambda row: isinstance(row, tuple) and len(row) == 2,
        "two functions",
    ),
    "FREQUENCIES": Table("clipx.models.kernels.FREQUENCIES", callable, "a function"),
    "MASKS": Table("clipx.training.modality_mixing.MASKS", callable, "a function"),
    "TASKS": Table(
        "evaluation.tasks.TASKS",
        lambda row: not isinstance(row, type) and callable(getattr(row, "score", None)),
        "a task, not its class",
    ),
    "HEADLINE": Table("evaluation.types.HEADLINE", lambda row: isinstance(row, dict), "a dict {METRIC: TITLE}"),
    "LAYOUTS": Table("evaluation.datasets.opening.LAYOUTS", callable, "a function"),
}

Rows = dict[str, dict[str, Any]]  # table -> name -> row
_loaded: dict[str, Rows] = {}  # plug-in -> the rows that it added


def load_plugins(modules: Iterable[str]) -> None:
    """Import the modules and add their rows to the tables, once per process. Also add the rows of installed packages.

    Python searches the current folder for modules too, as the last folder of its path.

    Raises UserError: a module cannot be imported or has no table, or a name is already in the table.
    """
    _load_installed()
    for name in modules:
        if name not in _loaded:
            if str(Path.cwd()) not in sys.path:
                sys.path.append(str(Path.cwd()))  # last, so that no file here hides an installed package
            _add(name, f"plugins={name}", _tables(name, _import(name)))


def load_plugins_of_file(modules: list[str]) -> None:
    """Load the plug-ins that a file names, which may come from somebody else: installed ones, and those that are typed.

    Those that a program of the user has loaded with `load_plugins` are there already.

    Raises UserError: like `load_plugins`, or the command line does not name a module that no installed package has.
    """
    for name in modules:
        if not (name in _loaded or is_permitted("plugins", name) or is_installed(name)):
            raise UserError(
                f"plugins=[{name}] stands in a file, and {name} is no installed package: if you trust its code, add "
                f"plugins=[{name}] to the command, or in Python call clipx.utils.plugins.load_plugins(['{name}']) first"
            )
    load_plugins(modules)


def from_own_code(error: BaseException) -> TracebackType | None:
    """Return the part of an error's traceback that starts in a module of plugins=, or of its package, if any."""
    part = error.__traceback__
    while part and not any(f"{part.tb_frame.f_globals.get('__name__')}.".startswith(f"{name}.") for name in _loaded):
        part = part.tb_next
    return part


def source_hashes(modules: Iterable[str]) -> dict[str, str]:
    """Return loaded plug-in -> hash of its file; of a package, that of `__init__.py`."""
    files = {name: Path(getattr(sys.modules.get(name), "__file__", None) or "") for name in modules}
    return {name: sha256(path.read_bytes()).hexdigest()[:16] for name, path in files.items() if path.is_file()}


def added(table: str) -> dict[str, Any]:
    """Return the rows that plug-ins have added to a table."""
    return {name: row for rows in _loaded.values() for name, row in rows.get(table, {}).items()}


@cache
def _load_installed() -> None:
    installed = entry_points()
    for table in TABLES:
        for point in installed.select(group=f"clipx.{table.lower()}"):
            origin = f"entry point {point.name} = {point.value} of {point.dist.name if point.dist else 'a package'}"
            try:
                row = point.load()
            except (Exception, SystemExit) as error:  # the package's code may raise any error
                raise UserError(f"{origin} cannot be loaded ({_describe(error)}): repair or uninstall it") from error
            _add(origin, origin, {table: {point.name: row}})


def _import(name: str) -> ModuleType:
    search = "add its folder to PYTHONPATH (the current folder is searched too)"
    if "/" in name or name.endswith(".py"):
        raise UserError(f"plugins={name} is a path: name the module, plugins=[{Path(name).stem}], and {search}")
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:  # the module's code may raise any error
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise UserError(f"plugins={name}: there is no module {error.name}; install it, or {search}") from error
        raise UserError(f"plugins={name} cannot be imported: {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    """Return type, message, file and line of an error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (last.filename, last.lineno)
    return f"{type(error).__name__}: {one_line(error)}, {file}:{line}"


def _tables(name: str, module: ModuleType) -> Rows:
    """Return the tables of a module; a folder of recipes counts as a table of files."""
    found: Rows = {table: getattr(module, table) for table in TABLES if hasattr(module, table)}
    for table, rows in found.items():
        if not isinstance(rows, dict):
            raise UserError(f'plugins={name}: {table} must be a dict, {{"name": row}}')
    if hasattr(module, RECIPES):
        folder = getattr(module, RECIPES)
        if not isinstance(folder, str | os.PathLike) or not Path(folder).is_dir():
            raise UserError(f"plugins={name}: RECIPES={folder} is not a folder")
        found[RECIPES] = _recipes(Path(folder))
    if not found:
        raise UserError(
            f"plugins={name} adds nothing; a plug-in has one or more of {', '.join([*TABLES, RECIPES])}. If it only "
            "registers models with open_clip or timm, add TOWERS = {}"
        )
    return found


def _recipes(folder: Path) -> dict[str, Any]:
    return {path.stem: path for path in recipe_files(folder)}


def _add(plugin: str, origin: str, tables: Rows) -> None:
    """Add the rows to clipx's tables.

    Raises UserError: a row is not of its table's kind, or a table has another row with the same name.
    """
    for table in tables.keys() - {RECIPES}:  # recipes are files that were found in a folder
        for name, row in tables[table].items():
            if not isinstance(name, str) or not TABLES[table].is_row(row):
                right = f"the name must be a string, the row {TABLES[table].row}"
                raise UserError(f"{origin}: {table} has the row {name!r}: {row!r}; {right}")
    ours = {table: _clipx_table(table) for table in tables}
    for table, rows in tables.items():
        for name, row in rows.items():
            if name in ours[table] and ours[table][name] is not row:
                raise UserError(f"{origin}: {table} has a {name!r} already; choose another name")
    for table, rows in tables.items():
        ours[table].update(rows)
    _loaded[plugin] = tables


def _clipx_table(table: str) -> dict[str, Any]:
    if table == RECIPES:  # clipx has no such table: the commands read the rows with `added`
        return _recipes(Path(str(files("recipes")))) | added(RECIPES)
    rows: dict[str, Any] = _object(TABLES[table].location)
    return rows


def _object(location: str) -> Any:
    """Import an object: `package.module.NAME`."""
    module, _, attribute = location.rpartition(".")
    return getattr(import_module(module), attribute)
