"""The protocol of an experiment: settings -> `solve` -> result -> `claims` and `draw`.

Each problem module defines a `Settings` subclass, a result dataclass and the functions `solve` and `claims`; the
module `<problem>_figure` next to it defines `draw`. `clipx.theory.THEORY` lists the experiments.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from clipx.config.setting import Rule
from clipx.errors import UserError
from clipx.theory.claims import CheckedClaim
from clipx.utils.figures import STYLE, Figures
from clipx.utils.registry import lookup

Array = NDArray[np.float64]
OPEN_SHARE: Rule = (lambda v: 0 < v < 1, "between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of an experiment's parameters.

    A field declares its range as `Annotated[int, rule]`; the rule of a tuple applies to each of its numbers. Raises
    UserError for a number out of its range, or an empty tuple that has a rule.
    """

    def __post_init__(self) -> None:
        for key, hint in get_type_hints(type(self), include_extras=True).items():
            for is_allowed, allowed in getattr(hint, "__metadata__", ()):
                value = getattr(self, key)
                values = value if isinstance(value, tuple) else (value,)
                if not values or not all(is_allowed(v) for v in values):
                    raise out_of_range(key, value, allowed)


def out_of_range(key: str, value: float | tuple[float, ...], allowed: str) -> UserError:
    text = ",".join(f"{v:g}" for v in value) if isinstance(value, tuple) else f"{value:g}"
    return UserError(f"{key}={text} is out of range; allowed: {allowed}")


def require_two_values(key: str, values: tuple[int, ...]) -> None:
    """Raise UserError unless a setting has two different values; a claim compares its smallest and largest value."""
    if len(set(values)) < 2:
        raise out_of_range(key, values, "two or more different numbers (the claim compares the extremes)")


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Experiment:
    """A toy problem. `solve` computes the result from the settings; the other functions only read the result."""

    settings: type[Settings]
    solve: Callable[[Any], Any]
    claims: Callable[[Any], list[CheckedClaim]]
    draw: Callable[[Any], Figures]

    def write_figures(self, result: Any, folder: Path) -> list[Path]:
        """Draw the figures, write each as SVG into `folder` and return the files."""
        from matplotlib import rc_context

        with rc_context(STYLE):
            figures = {folder / f"{name}.svg": figure for name, figure in self.draw(result).items()}
            for path, figure in figures.items():
                figure.savefig(path, metadata={"Date": None})  # without a date equal figures give equal files
        return list(figures)


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
