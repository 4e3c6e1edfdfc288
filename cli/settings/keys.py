"""Dotted setting names against the dataclasses that define them."""

from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from clipx.errors import UserError
from clipx.utils.registry import suggest


def check_key(schema: type, key: str) -> None:
    """Whether a dotted key names a setting; below a dict field (objective.*) anything may stand.

    Raises:
        UserError: the key with the nearest names.
    """
    hint = suggest_key(schema, key)
    if hint:
        raise UserError(f"{key} is not a setting; {hint}")


def suggest_key(schema: type, key: str) -> str:
    """ "" for a known key, else what could have been meant at the first unknown part."""
    node: Any = schema
    prefix = ""
    for part in key.split("."):
        if not is_dataclass(node):
            return "" if node is dict else f"{prefix.rstrip('.')} has no parts"
        names = {f.name for f in fields(node)}
        if part not in names:
            return suggest(prefix + part, [prefix + n for n in names])
        node = _node_type(get_type_hints(node)[part])
        prefix += f"{part}."
    return ""


def is_free(schema: type, key: str) -> bool:
    """Whether a setting does not change what a run computes; group choices (data=NAME) are none."""
    node: Any = schema
    free = False
    for part in key.split("."):
        if not is_dataclass(node):
            return False
        found = {f.name: f for f in fields(node)}.get(part)
        if found is None:
            return False
        free = bool(found.metadata.get("free"))
        node = _node_type(get_type_hints(node)[part])
    return free


def _node_type(hint: Any) -> Any:
    """The dataclass or `dict` behind a field's annotation, also behind `X | None`."""
    for candidate in (hint, *get_args(hint)):
        if is_dataclass(candidate):
            return candidate
    return dict if getattr(hint, "__origin__", None) is dict else hint
