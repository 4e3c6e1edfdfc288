"""Rules for files from other people: they start no program, import no code, and read no environment variable.

The command line gives permission with `permit`. An environment variable carries it to worker processes, so no file of
a run can give it. `load_json` and `load_yaml` refuse content whose size in memory is out of proportion.
"""

import json
import os
import re
import site
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from clipx.errors import UserError
from clipx.utils.files import expanded

PERMITTED = "CLIPX_PERMITTED"
DIGITS = 40  # of an integer; seeds and sizes have at most 20
DEPTH = 100  # of nested lists and objects
VALUES = 100_000  # of a YAML file
INTEGER = re.compile(r"[-+]?(0x[0-9a-fA-F_]+|0b[01_]+|[0-9][0-9_]*)")
OTHER_BASE = re.compile(r"[-+]?(0[0-7_]+|[1-9][0-9_]*(:[0-5]?[0-9])+)")  # integers of YAML 1.1 in base 8 and 60
# schemes of URLs that a file may name; hf: sends the user's token, but only to the hub
FROM_FILES = ("", "file", "http", "https", "hf")
PROGRAMS = re.compile(r"\b(pipe|gs|htgs|ais|scp|sftp|ftps):|\b(?!file:|https?:|hf:)[a-z][\w+.-]*://", re.IGNORECASE)
EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")  # 1e-3, a text in YAML 1.1 and a number in Hydra
# Python objects that trainers save beside weights: NumPy's numbers and OmegaConf's settings
OBJECTS = (
    "numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "omegaconf.base.ContainerMetadata",
    "omegaconf.base.Metadata", "omegaconf.dictconfig.DictConfig", "omegaconf.listconfig.ListConfig", "typing.Any",
    "omegaconf.nodes.AnyNode", "builtins.dict", "builtins.int", "builtins.list",
)  # fmt: skip
REFERENCE = re.compile(r"\$\{[A-Za-z_][\w.]*\}")  # ${model.embed_dim}


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in small letters, "" for a path. Raises UserError: not a URL."""
    try:
        return urlsplit(url).scheme.lower()
    except ValueError as error:  # brackets that are no address
        raise UserError(f"{url} is not a URL ({error})") from error


def starts_program(url: str) -> bool:
    """Return True if reading a URL runs a command of its own (`pipe:`) or a program with the user's keys (`gs:`)."""
    return scheme_of(url) not in FROM_FILES


def permit(kind: str, values: Iterable[str]) -> None:
    """Remember what the user has typed: programs (`pipe:COMMAND`, `gs://...`), plugins (modules) or roots (folders)."""
    known = _permitted()
    known[kind] = sorted({*known.get(kind, []), *values})
    os.environ[PERMITTED] = json.dumps(known)


def is_permitted(kind: str, value: str) -> bool:
    """Return True if the command line has named this program, plug-in or folder."""
    return value in _permitted().get(kind, [])


def refuse_new_root(source: str, root: str | None) -> None:
    """Raise UserError if scenes would be rendered into a new folder that a file names, and not the command line."""
    if source == "scenes" and root and not expanded(root).exists() and not is_permitted("roots", root):
        raise UserError(f"data.root={root} does not exist; scenes are only rendered into a folder of the command line")


def _permitted() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(os.environ.get(PERMITTED) or "{}")
    return found


def is_installed(module: str) -> bool:
    """Return True if a module is installed, and not only in the current folder or on PYTHONPATH.

    A folder without __init__.py is no proof: a folder of the same name in the current one would be a part of it.
    """
    package, *inner = module.split(".")
    folders: Sequence[str] = [*site.getsitepackages(), site.getusersitepackages()]
    found = PathFinder.find_spec(package, folders)
    if found is None and package in packages_distributions():  # an editable installation
        found = find_spec(package)
        return found is not None and found.origin is not None and "__main__" not in inner
    for name in inner:
        folders = [*found.submodule_search_locations] if found and found.submodule_search_locations else []
        package = f"{package}.{name}"
        found = PathFinder.find_spec(package, folders)
    return found is not None and found.origin is not None and "__main__" not in inner


class _Empty:
    """Stands in place of an object that is not loaded."""

    def __init__(self, *content: object) -> None: ...

    __setstate__ = __init__


def without_objects() -> AbstractContextManager[None]:
    """Let torch.load(weights_only=True) put empty objects in place of OBJECTS, whose code never runs. Not to nest.

    A defaultdict becomes a dict, because torch fills it.
    """
    from torch.serialization import safe_globals

    plain: list[Any] = [(lambda *_: {}, "collections.defaultdict")]
    return safe_globals([*((_Empty, name) for name in OBJECTS), *plain])


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
    """Parse YAML of plain values; dates are texts.

    Raises ValueError: like `check_yaml`, or a key stands twice; YAMLError: not YAML.
    """
    import yaml  # here, because completion loads this module and must answer at once

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            if twice := next((key for key, times in keys.items() if times > 1), None):
                raise ValueError(f"line {node.start_mark.line + 1}: the key {twice} stands twice")
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

    resolvers = Loader.yaml_implicit_resolvers.items()
    Loader.yaml_implicit_resolvers = {c: [one for one in of if "timestamp" not in one[0]] for c, of in resolvers}
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+0123456789"))
    check_yaml(text)
    return yaml.load(text, Loader)


def check_yaml(text: str) -> None:
    """Raise ValueError for what is easily misread, or too large.

    That is: a number that YAML reads in base 8 or 60 (`0777`, `1:30`), aliases that expand to too many values, deep
    nesting, and very long integers.
    """
    import yaml

    def refusal(event: yaml.Event, problem: str) -> ValueError:
        return ValueError(f"line {event.start_mark.line + 1}: {problem}")

    sizes: dict[str, int] = {}  # anchor -> number of values
    nodes: list[tuple[str | None, int]] = []  # anchor and number of values before it, of each open list or object
    total = 0
    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
            if len(event.value) > DIGITS and INTEGER.fullmatch(event.value):
                raise refusal(event, f"an integer of {len(event.value)} digits")
            if event.implicit[0] and OTHER_BASE.fullmatch(event.value):
                raise refusal(event, f"YAML reads {event.value} in base 8 or 60; write a decimal number, or quotes")
        elif isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            nodes.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = nodes.pop()
            if anchor:
                sizes[anchor] = total - before
        if len(nodes) > DEPTH:
            raise refusal(event, "nested too deeply")
        if total > VALUES:
            raise refusal(event, f"more than {VALUES:,} values, aliases (*NAME) included")


def other_interpolation(text: str) -> str:
    """Return the first interpolation `${...}` that is no reference to another setting; "" if there is none."""
    rest = REFERENCE.sub("", text)
    return rest[rest.index("${") :] if "${" in rest else ""
