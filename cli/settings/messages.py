"""One-line errors for wrong overrides: mistakes that Hydra accepts silently, and clearer texts for Hydra's errors."""

import re
from argparse import Namespace
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from omegaconf import DictConfig, OmegaConf

from clipx.config.schema import RunConfig
from clipx.config.setting import allowed_hint, settings_of, suggest_key, wrong_type
from clipx.errors import UserError
from clipx.utils.registry import lookup, suggest

KINDS: dict[str, type] = {"Float": float, "Integer": int, "Boolean": bool, "bool": bool}  # in OmegaConf's messages


def refuse_options(arguments: list[str], known: Container[str]) -> None:
    """Raise UserError for an unknown option; the message names the settings of the same name."""
    for option in (argument.partition("=")[0] for argument in arguments if argument.startswith("-")):
        if option not in known:
            name = option.lstrip("-").replace("-", "_")
            near = " or ".join(f"{key}=..." for key in settings_of(RunConfig) if key.split(".")[-1] == name)
            rest = f": {near}" if near else "; for open_clip's flags see docs/settings.md"
            raise UserError(f"{option} is not an option; settings are written key=value{rest}")


def refuse_arguments(message: str) -> NoReturn:
    """Raise UserError; in place of argparse's error, which prints the usage."""
    raise UserError(message)


def refuse_together(given: Namespace) -> None:
    """Raise UserError for options that Hydra refuses together, with a traceback."""
    values = {"--run": given.run, "-m": given.multirun, "--cfg": given.cfg, "--info": given.info}
    several = [name for name, value in values.items() if value]
    if len(several) > 1:
        raise UserError(f"{' and '.join(several)} do not work together: leave one out")
    if given.resolve and not given.cfg:
        raise UserError("--resolve needs --cfg job")


def refuse_unknown_recipe(recipe: str, known: Iterable[str]) -> NoReturn:
    """Raise UserError; the message tells how to use a recipe of one's own."""
    if Path(f"{recipe}.yaml").is_file():
        raise UserError(f"recipe={recipe} is not known; for {recipe}.yaml in this folder, add --config-dir .")
    raise UserError(f"recipe={recipe} is not known; {suggest(recipe, known)}; recipes of your own: --config-dir FOLDER")


def check_choice(known: Mapping[str, Any], name: str, group: str) -> None:
    """Raise UserError if there is no such data set or objective; the message tells how to use a term of one's own."""
    try:
        lookup(known, name, group)
    except UserError as error:
        own = "; a term of your own: plugins=[MODULE]" if group == "objective" else ""
        raise UserError(f"{error}{own}") from error


def refuse_missing(composed: DictConfig, recipe: str) -> None:
    """Raise UserError if settings without a default are set neither by the recipe nor by overrides."""
    if missing := sorted(OmegaConf.missing_keys(composed)):
        hint = "; `clipx ls towers` lists towers" if any(key.startswith("model.") for key in missing) else ""
        raise UserError(
            f"recipe={recipe} does not set {', '.join(missing)}: add them to the recipe or the command{hint}"
        )


def wrong_type_in_recipe(key: str, value: Any, reason: str) -> str:
    """Return the message about a value of a recipe that OmegaConf refused for `reason`."""
    text = "null" if value is None else str(value)
    declared = settings_of(RunConfig).get(key)
    if about_value := _about_value(key, text, reason, RunConfig):
        return about_value
    if declared is None or key == "objective":
        by_name = f"; for one with a name, defaults: [override /{key}: NAME]" if key in ("data", "objective") else ""
        return f"{key}={text} must be settings, KEY: VALUE{by_name}"
    return f"{key}={text} has the wrong type{allowed_hint(declared)}"


def message_of(error: Exception, schema: type) -> str:
    """Return one line for an error of Hydra or OmegaConf, with the nearest settings if it is about an unknown key."""
    message = plain_line(error) + (f": {plain_line(error.__cause__)}" if error.__cause__ else "")
    value = re.match(r"Error merging override [+~]*(\S+?)=(.*?): (.*)", message, re.DOTALL)
    if value and (about_value := _about_value(value[1], value[2], value[3], schema)):
        return about_value
    key = re.search(r"full_key: (\S+)", f"{error}\n{error.__cause__}")
    near = suggest_key(schema, key[1]) if key else ""
    return f"{message} ({near})" if near else message


def plain_line(error: BaseException) -> str:
    """Return the error's text in one line, without the lines in which OmegaConf names keys and types."""
    lines = [part.strip() for part in str(error).splitlines() if part.strip()]
    return " ".join(p for p in lines if not p.startswith(("full_key", "object_type", "reference_type")))


def _about_value(key: str, value: str, reason: str, schema: type) -> str:
    """Return `key=value must be ...` for OmegaConf's reason; "" if it is another one."""
    group, _, name = key.partition(".")
    if group == "objective" and name and "." not in name:
        return f"{key}={value}: write {key}.weight={value}, or another setting of the term (clipx ls terms)"
    declared = settings_of(schema).get(key)
    if declared is None:
        return ""
    if "is not a ListConfig" in reason:
        return f"{key}={value} must be a list: {key}=[{value}]"
    kind = re.search(r"could not be converted to (\w+)|is not a valid (\w+)", reason)
    expected = KINDS.get((kind[1] or kind[2]) if kind else "")
    return wrong_type(key, value, expected, declared) if expected else ""
