"""The default name of a run: its recipe and its overrides."""

import re
from collections.abc import Iterable
from typing import Any

from cli.settings.arguments import same_spelling
from clipx.config.schema import RunConfig
from clipx.config.setting import settings_of
from clipx.errors import UserError

UNNAMED = re.compile(r"^(recipe|name|seed|hydra[./].*)$")  # keys without a `key_value` part
REMOVED = re.compile(r"^~objective\.\w+$")  # removes a term from the objective
CHOICES = ("arm", "data", "objective")  # only their values are in the name, not their keys
LONGEST_NAME = 255  # bytes that all common file systems allow in a folder name


def run_name(recipe: str, overrides: list[str], terms: Iterable[Any]) -> str:
    """Return the name of a run; `terms` are those of its objective. Raises UserError: the name is too long."""
    name = "-".join([recipe, *_parts(overrides, terms)])
    if len(name) > LONGEST_NAME:
        raise UserError(
            f"the overrides give the run a name of {len(name)} characters; a folder name may have {LONGEST_NAME}: "
            "add a short name=NAME"
        )
    return name


def _parts(overrides: list[str], terms: Iterable[Any]) -> list[str]:
    """Return `flickr8k` for data=flickr8k, and `key_value` for other settings.

    If a term was removed (~objective.TERM), the objective's part lists the remaining `terms`.
    The parts are sorted, so the order of overrides does not matter. They contain only characters that are safe in
    folder names and need no quotes in an override. Settings that do not change the result are left out.
    """
    known = settings_of(RunConfig)
    choices, settings = {}, {}
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in CHOICES:
            choices[key] = value
        elif not REMOVED.match(override) and not UNNAMED.match(key) and not (key in known and known[key].resumable):
            settings[key] = f"{key}_{same_spelling(value)}"
    if any(REMOVED.match(override) for override in overrides):
        choices["objective"] = "+".join(map(str, terms))
    parts = [choices[key] for key in CHOICES if key in choices] + [settings[key] for key in sorted(settings)]
    return [re.sub(r"[^\w.+-]+", "_", part, flags=re.ASCII).strip("_") for part in parts]
