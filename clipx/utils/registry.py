"""Look names up in tables such as `{"clip": ClipTerm}`; an unknown name gives an error with the nearest names."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from clipx.errors import UserError

V = TypeVar("V")


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return `did you mean 'a' or 'b'? ` with the nearest allowed names; "" if there is none."""
    near = get_close_matches(name, sorted(allowed), n=3)
    return f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""


def suggest(name: str, allowed: Iterable[str]) -> str:
    """Return `did you mean 'a' or 'b'? allowed: ...`, with all allowed names."""
    names = sorted(allowed)
    return f"{did_you_mean(name, names)}allowed: {', '.join(names) or '(none)'}"


def lookup(table: Mapping[str, V], name: str, key: str) -> V:
    """Return the entry `name` of `table`; `key` is the setting, or the command (`clipx ...`), that `name` is for.

    Raises UserError with the key, the name, the nearest names and all allowed names.
    """
    if name not in table:
        typed = f"{key} {name}" if key.startswith("clipx") else f"{key}={name}"
        raise UserError(f"{typed} is not known; {suggest(name, table)}")
    return table[name]


def one_of(name: str, allowed: Iterable[str], key: str) -> str:
    """Return the name if it is allowed; raise UserError like `lookup` otherwise."""
    return lookup({a: a for a in allowed}, name, key)
