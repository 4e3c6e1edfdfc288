"""Tables of names: `{"clip": ClipTerm, ...}` with an error that helps."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from clipx.errors import UserError

V = TypeVar("V")


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """`did you mean 'a' or 'b'? ` for a name that is not among `allowed`, "" where none is near."""
    near = get_close_matches(name, sorted(allowed), n=3)
    return f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""


def suggest(name: str, allowed: Iterable[str]) -> str:
    """`did you mean 'a' or 'b'? allowed: ...`: with the whole list, for a short one."""
    names = sorted(allowed)
    return f"{did_you_mean(name, names)}allowed: {', '.join(names) or '(none)'}"


def lookup(table: Mapping[str, V], name: str, key: str) -> V:
    """The entry `name` of `table`; `key` is the setting, or the command, that the user typed it for.

    Raises:
        UserError: naming the key, the value, the nearest names and the list.
    """
    if name not in table:
        typed = f"{key} {name}" if key.startswith("clipx") else f"{key}={name}"
        raise UserError(f"{typed} is not known; {suggest(name, table)}")
    return table[name]


def one_of(name: str, allowed: Iterable[str], key: str) -> str:
    """The name itself, if it is among `allowed`. Raises UserError as `lookup` does."""
    return lookup({a: a for a in allowed}, name, key)
