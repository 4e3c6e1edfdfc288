"""Rules for files from other people: they start no program, import no code, and read no environment variable.

The command line gives permission with `permit`. An environment variable carries it to worker processes, so no file of
a run can give it. `load_json` and `load_yaml` refuse content whose size in memory is out of proportion.
"""

import json
import os
import re
import site
from collections.abc import Iterable
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from typing import Any

PERMITTED = "CLIPX_PERMITTED"
DIGITS = 40  # of an integer; seeds and sizes have at most 20
DEPTH = 100  # of nested lists and objects
VALUES = 100_000  # of a YAML file
REFERENCE = re.compile(r"\$\{[A-Za-z_][\w.]*\}")  # ${model.embed_dim}


def permit(kind: str, values: Iterable[str]) -> None:
    """Remember what the user has typed: programs (`pipe:COMMAND`) or plugins (names of modules)."""
    known = _permitted()
    known[kind] = sorted({*known.get(kind, []), *values})
    os.environ[PERMITTED] = json.dumps(known)


def is_permitted(kind: str, value: str) -> bool:
    """Return True if the command line has named this program or plug-in."""
    return value in _permitted().get(kind, [])


def _permitted() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(os.environ.get(PERMITTED) or "{}")
    return found


def is_installed(module: str) -> bool:
    """Return True if the package of a module is installed, and not only in the current folder or on PYTHONPATH."""
    package = module.partition(".")[0]
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    return PathFinder.find_spec(package, folders) is not None or package in packages_distributions()


def load_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError: not JSON, nested too deeply, or an integer of too many digits."""
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _integer(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def load_yaml(text: str) -> Any:
    """Parse YAML of plain values. Raises ValueError like `check_yaml`; yaml.YAMLError: not YAML."""
    import yaml  # here, because completion loads this module and must answer at once

    check_yaml(text)
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def check_yaml(text: str) -> None:
    """Raise ValueError for aliases that expand to too many values, deep nesting, and very long integers."""
    import yaml

    sizes: dict[str, int] = {}  # anchor -> number of values
    nodes: list[tuple[str | None, int]] = []  # anchor and number of values before it, of each open list or object
    total = 0
    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        where = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            nodes.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = nodes.pop()
            if anchor:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
            if len(event.value) > DIGITS and event.value.isdigit():
                raise ValueError(f"{where}: an integer of {len(event.value)} digits")
        if len(nodes) > DEPTH:
            raise ValueError(f"{where}: nested too deeply")
        if total > VALUES:
            raise ValueError(f"{where}: more than {VALUES:,} values, aliases (*NAME) included")


def other_interpolation(text: str) -> str:
    """Return the first interpolation `${...}` that is no reference to another setting; "" if there is none."""
    rest = REFERENCE.sub("", text)
    return rest[rest.index("${") :] if "${" in rest else ""
