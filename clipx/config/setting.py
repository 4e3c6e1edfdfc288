"""The one way to declare a parameter: a dataclass field with default, meaning, unit and allowed values in one place.

Settings of a run (schema.py), options of a command and parameters of a theory problem are all declared so:

    @dataclass(kw_only=True)
    class Options:
        jobs: int = setting(1, "runs at the same time", AT_LEAST_1)
"""

import copy
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING as REQUIRED
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from clipx.errors import UserError, printable_line
from clipx.utils import plugins
from clipx.utils.registry import did_you_mean, lookup, one_of, suggest

S = TypeVar("S")
MISSING = "???"  # as in omegaconf, whose import would slow down completion
LARGEST = 2**64 - 1  # of a seed of torch; larger numbers overflow there, and as floats
# types in messages
WORDS: dict[Any, str] = {
    int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: "null",
    list: "a list: KEY=[VALUE]", tuple: "a list: KEY=[VALUE]", dict: "settings: KEY.NAME=VALUE",
}  # fmt: skip
Rule = tuple[Callable[[Any], bool], str]  # (returns True for an allowed value, the allowed values in words)


def at_least(low: float) -> Rule:
    """Return the rule that allows finite numbers >= low."""
    return lambda v: low <= v < math.inf, f"{low:g} or more"


def between(low: float, high: float) -> Rule:
    """Return the rule that allows numbers in low..high, both included."""
    return lambda v: low <= v <= high, f"{low:g}..{high:g}"


def each(rule: Rule, different: int = 1) -> Rule:
    """Return the rule for lists: `rule` allows every value, and at least `different` of them differ."""
    allowed = rule[1] if different == 1 else f"{different} or more different numbers, each {rule[1]}"
    return lambda values: len(set(values)) >= different and all(rule[0](v) for v in values), allowed


AT_LEAST_0, AT_LEAST_1 = at_least(0), at_least(1)
ALL_AT_LEAST_1: Rule = (lambda v: all(n >= 1 for n in v), "numbers of 1 or more")
POSITIVE: Rule = (lambda v: 0 < v < math.inf, "more than 0")
SHARE = between(0, 1)
OPEN_SHARE: Rule = (lambda v: 0 < v < 1, "above 0, below 1")
SHARES: Rule = (lambda v: all(0 <= share <= 1 for share in v), "numbers in 0..1")
FACTOR: Rule = (lambda v: 0 < v <= 1, "above 0, up to 1")
DECAY: Rule = (lambda v: 0 <= v < 1, "0 or more, below 1")
BETAS: Rule = (lambda v: len(v) == 2 and all(0 <= b < 1 for b in v), "two numbers of 0 or more, below 1")
ALPHA: Rule = (lambda v: len(v) == 2 and min(v) >= 0 and any(v), "two numbers of 0 or more, one above 0")
CROP_SCALE: Rule = (lambda v: len(v) == 2 and 0 < v[0] <= v[1] <= 1, "[low, high] with 0 < low <= high <= 1")
CONTEXT_LENGTH: Rule = (lambda v: 3 <= v <= 100_000, "3..100000: start, end and one token between")
WIDTH = between(1, 100_000)  # more units would only fill the memory
NAME: Rule = (
    lambda v: re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,254}", v) is not None,  # 255: limit of file systems
    "one folder name of A-Z a-z 0-9 _ . + -, not starting with . + or -, at most 255 characters",
)
WORKERS: Rule = (
    lambda v: v == "auto" or (isinstance(v, int) and not isinstance(v, bool) and v >= 0),
    "auto, or a whole number of 0 or more",
)
FOLDER: Rule = (lambda v: bool(v.strip()), "a folder")
RAND_AUGMENT: Rule = (lambda v: len(v) == 2 and v[0] >= 1 and 0 <= v[1] <= 10, "[n, m] with n >= 1 and m in 0..10")


@dataclass(frozen=True)
class Setting:
    """The metadata of a field."""

    default: Any
    meaning: str
    unit: str
    rule: Rule | None
    choices: tuple[str, ...]
    resumable: bool
    table: str

    def names(self) -> tuple[str, ...]:
        """Return the choices, including those of plug-ins; () for a setting without choices."""
        return (*self.choices, *plugins.added(self.table))

    def allowed(self) -> str:
        """Return unit and allowed values, as `clipx ls settings` prints them."""
        values = " | ".join(self.names()) or (self.rule[1] if self.rule else "")
        return ", ".join(filter(None, [self.unit, values]))


def setting(
    default: Any,
    meaning: str,
    rule: Rule | None = None,
    *,
    unit: str = "",
    choices: tuple[str, ...] = (),
    resumable: bool = False,
    table: str = "",
) -> Any:
    """Declare a dataclass field.

    Args:
        default: a list is copied for each config; omegaconf's MISSING: the user must set a value.
        rule: which values are allowed, for example a range; the value None (unset) is always allowed.
        choices: the allowed names of clipx itself; empty if names are checked elsewhere, such as data sources.
        resumable: the setting may differ when a run is resumed, because it does not change what the run computes,
            apart from batch statistics, dropout draws and rounding.
        table: table of `clipx.utils.plugins`, to which plug-ins add further choices.
    """
    metadata = {"setting": Setting(default, meaning, unit, rule, choices, resumable, table)}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def check(config: Any, prefix: str = "") -> None:
    """Check every value of a config; unset values (None) are skipped.

    `prefix` is the beginning of all keys in messages if `config` is a group of settings, e.g. "mixing.".

    Raises UserError naming the first key whose value is not allowed, the value and the allowed values.
    """
    for key, declared in settings_of(type(config)).items():
        _check_value(declared, prefix + key, attrgetter(key)(config))


def parse(schema: type[S], given: Mapping[str, str], command: str) -> S:
    """Return an instance of `schema` from the arguments KEY=TEXT of a command; other settings have their defaults.

    A list is written a,b or [a,b]. `command` is its name in messages, such as `report compare`.

    Raises UserError: an unknown key, an empty text, a text of the wrong type, or a value that is not allowed.
    """
    known, types = settings_of(schema), get_type_hints(schema)
    values = {}
    for key, text in given.items():
        declared = lookup(known, key, f"clipx {command}:")
        if not text:
            raise UserError(f"{key}= has no value" + allowed_hint(declared))
        values[key] = _convert(declared, key, text, types[key])
        _check_value(declared, key, values[key], text)
    return schema(**values)


def _convert(declared: Setting, key: str, text: str, hint: Any) -> Any:
    """Return the value of a text; `hint`: bool, int, float or str, a list or tuple of them, or one of these | None."""
    if isinstance(hint, UnionType):  # TYPE | None
        (hint,) = set(get_args(hint)) - {NoneType}
    if several := get_origin(hint):
        parts = text.strip("[]()").split(",") if text.strip("[]()") else []
        return several(_convert(declared, key, part.strip(" '\""), get_args(hint)[0]) for part in parts)
    try:
        return {"true": True, "false": False}[text] if hint is bool else hint(text)
    except (KeyError, ValueError) as error:
        raise UserError(f"{key}={text} must be {WORDS[hint]}" + allowed_hint(declared)) from error


def allowed_hint(declared: Setting) -> str:
    """Return the end of a message, `; allowed: ...`; "" if every value is allowed."""
    return f"; allowed: {declared.allowed()}" if declared.allowed() else ""


def _check_value(declared: Setting, key: str, value: Any, text: str = "") -> None:
    """Raise UserError if a value is not allowed; the message has the `text` that the user gave, if it is known."""
    if value is None:
        return
    if isinstance(value, int) and abs(value) > LARGEST:
        raise UserError(f"{key}={value} is out of range; allowed: whole numbers up to 2^64 - 1")
    if declared.choices:
        for name in value if isinstance(value, list | tuple) else [value]:
            one_of(name, declared.names(), key)
    if declared.rule:
        check_range(key, value, declared.rule, text)


def check_range(key: str, value: Any, rule: Rule, text: str = "") -> None:
    """Raise UserError if `rule` does not allow a value; `text`: what the user typed, if it is known."""
    if not rule[0](value):
        raise UserError(f"{key}={text or value} is out of range; allowed: {rule[1]}")


def settings_of(schema: type, prefix: str = "") -> dict[str, Setting]:
    """Return all settings of a schema by dotted key, in its order."""
    found: dict[str, Setting] = {}
    types = _types(schema)
    for f in fields(schema):
        key = f"{prefix}{f.name}"
        is_group = is_dataclass(types[f.name])
        found |= settings_of(types[f.name], f"{key}.") if is_group else {key: f.metadata["setting"]}
    return found


def from_values(schema: type[S], values: Mapping[str, Any], prefix: str = "") -> S:
    """Build a config, or another dataclass, from nested values of a file; missing ones have their defaults.

    `prefix` is the beginning of all keys in messages.

    Raises UserError: a key is unknown, a setting without default is missing, or a value has another type; the message
    names the key.
    """
    types, built = _types(schema), {}  # type: ignore[arg-type]
    if unknown := [str(name) for name in values if name not in types]:
        raise UserError(f"{prefix}{unknown[0]} is not a setting; {suggest(unknown[0], types)}")
    for f in fields(schema):  # type: ignore[arg-type]
        key, value = f"{prefix}{f.name}", values.get(f.name, MISSING)
        if is_dataclass(types[f.name]):
            if not isinstance(value, Mapping) and value != MISSING:
                text = "null" if value is None else value
                raise UserError(f"{key}={text} holds no settings (key: value lines)")
            built[f.name] = from_values(types[f.name], value if isinstance(value, Mapping) else {}, f"{key}.")
        elif value != MISSING:
            try:
                built[f.name] = _typed(types[f.name], value, key)
            except UserError as error:
                hint = allowed_hint(f.metadata["setting"]) if "setting" in f.metadata else ""
                raise UserError(f"{error}{hint}") from error
        elif f.default == MISSING or (f.default is REQUIRED and f.default_factory is REQUIRED):
            raise UserError(f"{key} is missing")
    return schema(**built)


@cache
def _types(schema: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields; a report reads thousands of files with the same schema."""
    return get_type_hints(schema)


def _typed(kind: Any, value: Any, key: str) -> Any:
    """Return a value of a file or an override as `kind`, such as `list[float]` or `int | None`. Raises UserError."""
    if type(value) is kind and (kind is not str or value.isprintable()):
        return value
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    kind = str if str in kinds and isinstance(value, str) else kinds[0]
    if (value is None and NoneType in kinds) or kind is Any:
        return value
    origin = get_origin(kind)
    if origin in (list, tuple) and isinstance(value, list):
        return origin(_typed(get_args(kind)[0], element, key) for element in value)
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return {str(name): _typed(get_args(kind)[1], element, f"{key}.{name}") for name, element in value.items()}
    if kind is float and not isinstance(value, bool):
        with suppress(TypeError, ValueError, OverflowError):
            return float(value)  # YAML reads 1e-3, without a dot, as a string
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and printable_line(value).split() != value.split():
        raise UserError(f"{key} has control characters: {printable_line(value)}")
    if isinstance(value, origin or kind) and not (kind is int and isinstance(value, bool)):
        return value
    text, words = "null" if value is None else value, str(WORDS.get(origin or kind, kind))
    raise UserError(f"{key}={text} must be {words.replace('KEY', key)}")


def check_type(schema: type, key: str, value: Any) -> None:
    """Raise UserError if the value of a setting, given by its dotted key, has another type."""
    kind: Any = schema
    for part in key.split("."):
        if not is_dataclass(kind):  # a parameter of a term, which the term checks
            return
        kind = _types(kind)[part]  # type: ignore[arg-type]
    _typed(dict[str, Any] if is_dataclass(kind) else kind, value, key)


def check_key(schema: type, key: str) -> None:
    """Check that a dotted key names a setting or a group; below a dict (objective.*) every name is allowed.

    Raises UserError with the key and a hint.
    """
    if hint := suggest_key(schema, key):
        raise UserError(f"{key} is not a setting; {hint}")


def suggest_key(schema: type, key: str) -> str:
    """Return "" for a known key, else a hint.

    The hint suggests similar names, or says that a setting has no parts, as in train.epochs.x.
    """
    node: Any = schema
    prefix = ""
    for part in key.split("."):
        if not is_dataclass(node):
            return "" if get_origin(node) is dict else f"{prefix.rstrip('.')} has no parts"
        types = get_type_hints(node)
        if part not in types:
            known = settings_of(schema)
            ends = [name for name in known if name.endswith(f".{key}")]
            if not ends and prefix + part == key:  # train.lr: the name of another group's setting
                ends = [name for name in known if name.endswith(f".{part}")]
            if not ends and "_" in part:  # train.learning_rate: what settings mean, those with short texts first
                meant = [name for name in known if part.replace("_", " ") in known[name].meaning]
                ends = sorted(meant, key=lambda name: len(known[name].meaning))[:2]
            if ends:
                return f"did you mean {' or '.join(map(repr, ends))}?"
            if "." in key and (near := did_you_mean(key, known)):
                return near.strip()
            return suggest(prefix + part, [prefix + name for name in types])
        node = types[part]
        prefix += f"{part}."
    return ""
