"""`key=value` arguments of a command, and the checks of Hydra's options before Hydra sees them."""

import re
from argparse import Namespace
from collections.abc import Container
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn, TypeVar

from clipx.config.setting import AT_LEAST_1, parse, setting
from clipx.errors import UserError
from clipx.training.devices import DEVICES
from clipx.utils.trust import permit

S = TypeVar("S")
HOME = re.compile(r"(^|[=\[,] *)~(?=/|$)")  # at the start of a path, also in a list


@dataclass(kw_only=True)
class NoOptions:
    """For commands without options."""


@dataclass(kw_only=True)
class CheckOptions:
    """The options of `clipx check`; they are here so that a wrong one is refused before cli.check imports torch."""

    device: str | None = setting(None, "GPU for which memory and time are calculated", choices=tuple(DEVICES))
    processes: int | None = setting(None, "number of these GPUs; null: train.processes x launch.nodes", AT_LEAST_1)


def with_home(argument: str) -> str:
    """Return the argument with the home folder in place of ~ in key=~/x, which most shells leave as it is."""
    return HOME.sub(lambda found: f"{found[1]}{Path.home()}", argument)


def parse_arguments(arguments: list[str], schema: type[S], command: str, needs: str) -> tuple[list[str], S]:
    """Return the positional arguments (paths or names) and the options of a command.

    Args:
        schema: the options, a dataclass of clipx.config.setting.
        needs: the positional argument, for messages; "..." at its end allows several, RUN adds the newest runs.

    Raises UserError: an unknown, repeated or wrong option, or a wrong number of positional arguments.
    """
    positional, options = parse_options(arguments, schema, command)
    if not positional or (len(positional) != 1 and not needs.endswith("...")):
        from clipx.run.folder import newest_runs  # here, because it would slow completion down

        number = f", {len(positional)} are given" if positional else ""
        help_command = f"clipx {command.split()[0]} --help"
        runs = newest_runs() if "RUN" in needs else ""
        raise UserError(f"`clipx {command}` needs {needs}{number}; {help_command} shows all arguments{runs}")
    return positional, options


def parse_options(arguments: list[str], schema: type[S], command: str) -> tuple[list[str], S]:
    """Return the positional arguments, any number of them, and the options; raise UserError for a wrong option."""
    positional, given = split_positional(arguments)
    return positional, parse(schema, split_given(given)[0], command)


def take_options(arguments: list[str], schema: type[S], command: str) -> tuple[S, list[str]]:
    """Return the options of a command that also takes settings of a run, and all other arguments.

    Raises UserError: a repeated or wrong option.
    """
    given, others = split_given(arguments, {f.name for f in fields(schema)})  # type: ignore[arg-type]
    return parse(schema, given, command), others


def split_positional(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split positional arguments from settings: a setting has a "=" and no "/" before it, so paths may contain "="."""
    settings = [a for a in arguments if "=" in a and "/" not in a.partition("=")[0]]
    return [a for a in arguments if a not in settings], settings


def split_given(arguments: list[str], known: Container[str] | None = None) -> tuple[dict[str, str], list[str]]:
    """Return the arguments KEY=VALUE by key, of the `known` keys if they are given, and all other arguments.

    Raises UserError: a key is given twice.
    """
    given = [a for a in arguments if "=" in a and (known is None or a.partition("=")[0] in known)]
    refuse_duplicates(given)
    return dict(a.split("=", 1) for a in given), [a for a in arguments if a not in given]


def refuse_duplicates(overrides: list[str]) -> None:
    """Raise UserError if a key is given twice: the last value would silently be used."""
    given: dict[str, str] = {}
    for override in overrides:
        if (key := key_of(override)) in given:
            raise UserError(f"{key} is given twice: {given[key]} and {override}; leave one out")
        given[key] = override


def key_of(override: str) -> str:
    """Return the key of an override, without Hydra's + and ~."""
    return override.partition("=")[0].lstrip("+~")


def split_config_dir(arguments: list[str]) -> tuple[list[Path], list[str]]:
    """Split Hydra's option --config-dir DIR from the other arguments; return its folders and the rest."""
    folders, others = [], []
    remaining = iter(arguments)
    for argument in remaining:
        if argument in ("--config-dir", "-cd"):
            if (folder := next(remaining, None)) is None:
                raise UserError(f"{argument} needs a folder")
            folders.append(Path(folder))
        elif argument.startswith("--config-dir="):
            folders.append(Path(argument.partition("=")[2]))
        else:
            others.append(argument)
    return folders, others


def argparse_error(message: str) -> NoReturn:
    """Raise UserError for a wrong option of Hydra, instead of ArgumentParser.error, which prints the usage."""
    raise UserError(f"{message}; settings are written key=value; for open_clip's flags see docs/settings.md")


def refuse_together(given: Namespace) -> None:
    """Raise UserError for options that exclude each other: Hydra would print a traceback."""
    values = {"--run": given.run, "-m": given.multirun, "--cfg": given.cfg, "--info": given.info}
    several = [name for name, value in values.items() if value]
    if len(several) > 1:
        raise UserError(f"{' and '.join(several)} do not work together: leave one out")
    if given.resolve and not given.cfg:
        raise UserError("--resolve needs --cfg job")


def shows_config(arguments: list[str]) -> bool:
    """Return True for --cfg job without --package, --resolve: Hydra would leave out the run's name, so clipx prints."""
    if any(argument.startswith(("-p", "--package", "--resolve")) for argument in arguments):
        return False
    return re.search(r"(^| )(--cfg[ =]|-c[ =]?)job( |$)", " ".join(arguments)) is not None


def names_plugins(override: str) -> bool:
    """Return True for plugins=..., also with Hydra's +."""
    return override.lstrip("+").startswith("plugins=")


def plugin_names(arguments: list[str]) -> list[str]:
    """Return the modules of plugins=[MODULE,...], or of plugins=MODULE."""
    given = [a.partition("=")[2] for a in arguments if names_plugins(a)]
    parts = given[-1].strip("[]").split(",") if given else []
    return [name for part in parts if (name := part.strip(" '\""))]


def permit_plugins(arguments: list[str]) -> list[str]:
    """Return the modules of plugins= on the command line, and allow their import in this and in worker processes."""
    names = plugin_names(arguments)
    permit("plugins", names)
    return names


def with_plugin_list(overrides: list[str]) -> list[str]:
    """Return the overrides with plugins=NAME written as plugins=[NAME]."""
    listed = f"plugins=[{','.join(plugin_names(overrides))}]"
    return [listed if names_plugins(o) else o for o in overrides]


def as_hydra_writes(value: str) -> str:
    """Write a decimal number as Hydra's sweeps do (1e-3 -> 0.001), so that a run has one name alone and in a sweep."""
    try:
        return value if value.lstrip("+-").isdigit() else str(float(value))
    except ValueError:
        return value
