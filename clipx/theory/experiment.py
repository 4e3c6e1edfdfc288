"""What an experiment is: settings in, a solved problem out, claims and drawings of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, get_args, get_type_hints

from clipx.config.setting import Rule
from clipx.errors import UserError
from clipx.theory.claims import CheckedClaim
from clipx.utils.registry import lookup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT: Rule = (lambda v: v >= 2, "2 or more")
OPEN_SHARE: Rule = (lambda v: 0 < v < 1, "between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of an experiment's parameters; a tuple's rule holds for each of its numbers.

    Raises:
        UserError: a number out of its range.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {}

    def __post_init__(self) -> None:
        for key, (holds, allowed) in self.RULES.items():
            value = getattr(self, key)
            values = value if isinstance(value, tuple) else (value,)
            if not values or not all(holds(v) for v in values):
                raise out_of_range(key, value, allowed)


def out_of_range(key: str, value: float | tuple[float, ...], allowed: str) -> UserError:
    """For a setting whose range depends on another one, too."""
    text = ",".join(f"{v:g}" for v in value) if isinstance(value, tuple) else f"{value:g}"
    return UserError(f"{key}={text} is out of range; allowed: {allowed}")


def two_or_more(key: str, values: tuple[int, ...]) -> None:
    """For a setting whose smallest and largest number a claim compares: one alone would be its own measure.

    Raises:
        UserError: fewer than two different numbers.
    """
    if len(set(values)) < 2:
        raise out_of_range(key, values, "two or more different numbers, the claim compares them")


Cells = dict[str, str | float]  # column -> cell
S = TypeVar("S", bound=Settings)
R = TypeVar("R")


@dataclass(frozen=True)
class Experiment(Generic[S, R]):
    """`solve` computes everything; the others only read its result."""

    settings: type[S]
    solve: Callable[[S], R]
    claims: Callable[[R], list[CheckedClaim]]
    draw: Callable[[R], "dict[str, Figure]"]
    table: Callable[[R], list[Cells]] = lambda _: []  # rows worth reading beside the claims


def parse(schema: type[S], given: Mapping[str, str]) -> S:
    """Settings from the command line's `key=value`; a tuple is written `a,b,c`.

    Raises:
        UserError: an unknown key, a value of the wrong kind or out of range.
    """
    hints = get_type_hints(schema)
    kinds = {field.name: hints[field.name] for field in fields(schema)}
    return schema(**{key: _convert(key, text, lookup(kinds, key, "clipx theory:")) for key, text in given.items()})


def _convert(key: str, text: str, kind: type) -> object:
    parts = get_args(kind)  # (float, ...) of a tuple
    try:
        if parts:
            return tuple(parts[0](part) for part in text.strip("[]()").split(","))
        return kind(text)
    except ValueError as error:
        words = f"{parts[0].__name__}s, as in a,b,c" if parts else f"a number ({kind.__name__})"
        raise UserError(f"{key}={text} must be {words}") from error
