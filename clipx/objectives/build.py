"""From `{"clip": {}, "positive": {"weight": 0.1}}` to an objective, with errors that name the key."""

import inspect
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from clipx.errors import UserError
from clipx.objectives.base import Objective, Term
from clipx.utils.registry import lookup, suggest

KINDS: dict[Any, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
    NoneType: (NoneType,),
}


def build_objective(
    table: Mapping[str, type[Term]], terms: Mapping[str, Mapping[str, object]], num_samples: int
) -> Objective:
    """See `clipx.objectives.build`; a term whose `__init__` has `num_samples` is given it."""
    if not terms:
        raise UserError(f"objective has no term; {suggest('', table)}")
    built: dict[str, Term] = {}
    weights: dict[str, float] = {}
    for name, given in terms.items():
        term = lookup(table, name, "objective")
        parameters = dict(given or {})
        weight = parameters.pop("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise UserError(f"objective.{name}.weight={weight!r} must be a number")
        allowed = inspect.signature(term, eval_str=True).parameters
        for parameter in parameters:
            if parameter not in allowed or parameter == "num_samples":
                names = [*(p for p in allowed if p != "num_samples"), "weight"]
                raise UserError(f"objective.{name}.{parameter} is not known; {suggest(parameter, names)}")
            _check_type(f"objective.{name}.{parameter}", parameters[parameter], allowed[parameter].annotation)
        if "num_samples" in allowed:
            parameters["num_samples"] = num_samples
        built[name], weights[name] = term(**parameters), float(weight)
    return Objective(built, weights)


def _check_type(key: str, value: object, expected: Any) -> None:
    """A whole number is a float too; nothing else is converted, so that `average=off` is not taken for true.

    Parameters of kinds that are not in KINDS are for the term to check.
    """
    kinds = get_args(expected) if get_origin(expected) in (Union, UnionType) else (expected,)
    if all(kind in KINDS for kind in kinds) and not any(_is_a(kind, value) for kind in kinds):
        allowed = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
        raise UserError(f"{key}={value!r} must be a {allowed}")


def _is_a(kind: Any, value: object) -> bool:
    return isinstance(value, KINDS[kind]) and (kind is bool or not isinstance(value, bool))
