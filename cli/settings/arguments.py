"""`key=value` arguments of the commands that have no configuration."""

from collections.abc import Mapping
from pathlib import Path

from clipx.errors import UserError
from clipx.utils.registry import lookup


def split(arguments: list[str], known: Mapping[str, str], command: str) -> tuple[list[str], dict[str, str]]:
    """The arguments that are no settings, and the settings: those of `known` with what was given.

    A path may hold a "=" behind a "/".

    Raises:
        UserError: a setting that is not known.
    """
    settings = [a for a in arguments if "=" in a and "/" not in a.partition("=")[0]]
    given = dict(a.split("=", 1) for a in settings)
    for key in given:
        lookup(known, key, f"clipx {command}:")
    return [a for a in arguments if a not in settings], {**known, **given}


def one_folder(places: list[str], command: str) -> Path:
    """Raises UserError unless there is one."""
    if len(places) != 1:
        raise UserError(f"clipx {command} needs the folder of the shards")
    return Path(places[0])


def flag(text: str, key: str) -> bool:
    """true or false. Raises UserError for anything else."""
    return lookup({"true": True, "false": False}, text, key)


def count(text: str, key: str) -> int:
    """Raises UserError unless it is a whole number, 1 or more."""
    if not text.isdigit() or int(text) < 1:
        raise UserError(f"{key}={text} must be a whole number, 1 or more")
    return int(text)


def number(text: str, key: str, low: float, high: float) -> float:
    """Raises UserError unless it is a number in low..high."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise UserError(f"{key}={text} must be a number from {low:g} to {high:g}")
    return value
