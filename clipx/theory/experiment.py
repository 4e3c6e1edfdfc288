"""The protocol of a toy problem: settings -> `solve` -> result -> `claims` and `figure`.

Each file of a paper defines a `Settings` subclass, a result dataclass and these three functions. `clipx.theory.THEORY`
lists the problems.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from clipx.config.setting import Rule, check
from clipx.errors import UserError
from clipx.theory.claims import CheckedClaim
from clipx.theory.figures import Panel
from clipx.utils.registry import lookup

Array = NDArray[np.float64]
OPEN_SHARE: Rule = (lambda v: 0 < v < 1, "between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of a problem's settings. Raises UserError for a number out of its range."""

    def __post_init__(self) -> None:
        check(self)


def each(rule: Rule) -> Rule:
    """Return the rule that allows one or more numbers, each of which `rule` allows."""
    return lambda values: bool(values) and all(rule[0](value) for value in values), rule[1]


def require_two_values(key: str, values: tuple[int, ...]) -> None:
    """Raise UserError unless a setting has two different values; a claim compares its smallest and largest value."""
    if len(set(values)) < 2:
        text = ",".join(map(str, values))
        allowed = "two or more different numbers (the claim compares the extremes)"
        raise UserError(f"{key}={text} is out of range; allowed: {allowed}")


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Experiment:
    """A toy problem. `solve` computes the result from the settings; the other functions only read the result."""

    settings: type[Settings]
    solve: Callable[[Any], Any]
    claims: Callable[[Any], list[CheckedClaim]]
    figure: Callable[[Any], list[Panel]]


def parse(schema: type[S], given: Mapping[str, str]) -> S:
    """Return the settings for `key=value` arguments; tuples are written `a,b,c`.

    Raises UserError for an unknown key, a value of the wrong type, or a value out of its range.
    """
    types = get_type_hints(schema)
    return schema(**{key: _convert(key, text, lookup(types, key, "clipx theory:")) for key, text in given.items()})


def _convert(key: str, text: str, kind: type) -> object:
    item = get_args(kind)  # (float, ...) for a tuple
    try:
        if item:
            return tuple(item[0](part) for part in text.strip("[]()").split(","))
        return kind(text)
    except ValueError as error:
        expected = f"{item[0].__name__}s, as in a,b,c" if item else f"a number ({kind.__name__})"
        raise UserError(f"{key}={text} must be {expected}") from error
