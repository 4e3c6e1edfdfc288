"""Builds an objective from settings such as {"clip": {}, "positive": {"weight": 0.1}}."""

import inspect
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from clipx.errors import UserError
from clipx.objectives.base import Objective, Term
from clipx.utils.registry import lookup, suggest

# annotation of a parameter -> accepted types, and their name in an error message
ACCEPTED: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
    NoneType: ((NoneType,), "null"),
}


def build_objective(
    table: Mapping[str, type[Term]], terms: Mapping[str, Mapping[str, object]], num_samples: int
) -> Objective:
    """Build the objective from the term classes in `table`.

    Arguments and errors are those of the function `build` in `clipx/objectives/__init__.py`.
    """
    if not terms:
        raise UserError(f"objective has no term; {suggest('', table)}")
    built: dict[str, Term] = {}
    weights: dict[str, float] = {}
    for name, settings in terms.items():
        term = lookup(table, name, "objective")
        signature = inspect.signature(term, eval_str=True).parameters
        allowed = {key: p.annotation for key, p in signature.items() if key != "num_samples"} | {"weight": float}
        parameters: dict[str, Any] = {"weight": 1.0, **(settings or {})}
        for key, value in parameters.items():
            if key not in allowed:
                raise UserError(f"objective.{name}.{key} is not known; {suggest(key, allowed)}")
            _check_type(f"objective.{name}.{key}", value, allowed[key])
        weights[name] = float(parameters.pop("weight"))
        if "num_samples" in signature:
            parameters["num_samples"] = num_samples
        built[name] = term(**parameters)
    return Objective(built, weights)


def _check_type(key: str, value: object, annotation: Any) -> None:
    """Raise UserError if a value does not have the annotated type.

    A whole number counts as a number. Nothing else is converted: `average="off"` must not be read as true. Parameters
    of other types, such as lists, are checked by their term.
    """
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if not all(kind in ACCEPTED for kind in kinds):
        return
    accepted = tuple(t for kind in kinds for t in ACCEPTED[kind][0])
    unwanted_bool = isinstance(value, bool) and bool not in kinds  # bool is a subclass of int
    if unwanted_bool or not isinstance(value, accepted):
        raise UserError(f"{key}={value!r} must be {' or '.join(ACCEPTED[kind][1] for kind in kinds)}")
