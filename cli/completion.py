"""clipx completion bash|zsh

Prints the script that completes commands, settings with their choices, recipes, arms and names of data and tasks.
Add eval "$(clipx completion bash)" to ~/.bashrc, or eval "$(clipx completion zsh)" to ~/.zshrc.
"""

import contextlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from cli.settings.arguments import CheckOptions, NoOptions, parse_arguments, split_config_dir
from clipx.config.setting import settings_of
from clipx.utils.files import cache_home, content_hash, recipe_files, write_text
from clipx.utils.registry import lookup

SCRIPTS = {
    "bash": """\
_clipx() {
    local IFS=$'\\n'
    COMPREPLY=($(clipx --complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
}
complete -o nospace -o default -F _clipx clipx
""",
    "zsh": """\
_clipx() {
    local -a found
    found=("${(@f)$(clipx --complete zsh "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    if [[ -n "$found[1]" ]]; then compadd -Q -U -S '' -a found; else _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _clipx clipx
""",
}
ROOT = Path(__file__).parents[1]
FOLDERS = ("cli", "clipx", "evaluation", "recipes")  # if one of their files changes, the table is written again
FLAGS = ["true", "false"]
ARM_SETTINGS = ("arm", "arms", "reference")  # settings whose values are arms of the recipe
WITH_SETTINGS = ("train", "check", "reproduce", "tune", "bench", "data embed")  # commands with settings of a run
EXAMPLES = {  # values to offer for options that allow others too
    "by": ["mean", "zeroshot", "linear_probe", "retrieval", "pairs"],
    "on": ["held_out"],
    "scale": ["samples", "data", "width", "batch"],
}


class Completions(TypedDict):
    """Words that can be completed."""

    positional: dict[str, list[str]]  # command -> arguments without "="
    values: dict[str, dict[str, list[str]]]  # command (`train`, `data verify`) -> key -> values
    arms: dict[str, list[str]]  # recipe -> arms


def script(arguments: list[str]) -> None:
    """Run `clipx completion SHELL`: print the script."""
    (shell,), _ = parse_arguments(arguments, NoOptions, "completion", "bash or zsh")
    print(lookup(SCRIPTS, shell, "clipx completion"), end="")


def answer(arguments: list[str], commands: Iterable[str]) -> None:
    """Run `clipx --complete SHELL LINE`: print one completion per line; print nothing after an error.

    The shell calls it at every TAB. It reads a cached table and imports no slow library. The first TAB after a change
    of the code writes the table, which takes some seconds.
    """
    with contextlib.suppress(Exception):
        shell, line = arguments
        file = _table_file()
        if not file.is_file():
            write_text(file, json.dumps(build_table()))
        found = complete(line, list(commands), json.loads(file.read_text()))
        if shell == "bash":  # bash replaces only the part after the last = or :
            word = re.split(r"\s", line)[-1]
            typed = max(word.rfind("="), word.rfind(":")) + 1
            found = [candidate[typed:] for candidate in found]
        print("\n".join(found))


def complete(line: str, commands: list[str], table: Completions) -> list[str]:
    """Return the words that may replace the last word of the line; a complete word ends with a space."""
    _, *words = re.split(r"\s+", line.lstrip())
    *before, word = words or [""]
    if not before:
        return _starting(word, [*commands, "--help", "--version"])
    command = before[0]
    values = table["values"].get(" ".join(before[:2]), table["values"].get(command, {}))
    folders, typed = split_config_dir(before)
    own = [file for folder in folders for file in recipe_files(folder)]
    arms = table["arms"] | {file.stem: _arms(file) for file in own if file.is_file()}
    if "recipe" in values:
        values = values | {"recipe": list(arms)}
    if "=" not in word:
        is_first = all("=" in argument for argument in typed[1:])
        names = table["positional"].get(command, []) if is_first else []
        return _starting(word, [*names, "--help"]) + _keys(word, values)
    key, _, value = word.partition("=")
    choices = values.get(key.lstrip("+~"), [])
    if key in ARM_SETTINGS:
        recipes = [other.removeprefix("recipe=") for other in before if other.startswith("recipe=")]
        choices = [arm for names in recipes for recipe in names.split(",") for arm in arms.get(recipe, [])]
    at = max(value.rfind("["), value.rfind(",")) + 1  # complete the last entry of a list
    found = [f"{key}={value[:at]}{choice}" for choice in choices if choice.startswith(value[at:])]
    return [one if "[" in value or one.endswith(":") else f"{one} " for one in found]


def _starting(word: str, names: list[str]) -> list[str]:
    return [f"{name} " for name in names if name.startswith(word) and (word or not name.startswith("-"))]


def _keys(word: str, values: dict[str, list[str]]) -> list[str]:
    """Return the keys that start with the word, up to the next dot."""
    keys = [key for key in values if key.startswith(word)]
    ends = (key.find(".", len(word)) for key in keys)
    return list(dict.fromkeys(f"{key}=" if end < 0 else key[: end + 1] for key, end in zip(keys, ends, strict=True)))


def _arms(file: Path) -> list[str]:
    """Return the arms of a recipe file, without a YAML library, which is slow to import."""
    text = file.read_text(encoding="utf-8", errors="replace") + "\n"
    below = re.search(r"^arms:.*\n((?:(?:[ #].*)?\n)*)", text, re.MULTILINE)
    return re.findall(r"^  ([\w.+-]+):", below[1], re.MULTILINE) if below else []


def _table_file() -> Path:
    """Return the path of the table, named by a hash of the modification times of the files in FOLDERS."""
    files = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".yaml"))
    stamps = [(str(file), file.stat().st_mtime_ns) for file in files]
    return cache_home() / "completion" / f"{content_hash(stamps)}.json"


def options() -> dict[str, type]:
    """Return command -> its options. Slow, because it imports torch."""
    from cli import bench, data, tune, watch
    from cli.export import command as export
    from cli.report import command as report
    from cli.report.compare import Options as ReportOptions
    from cli.reproduce import plan

    return {
        "check": CheckOptions,
        "bench": bench.Options,
        "export": export.Options,
        "reproduce": plan.Options,
        "tune": tune.Options,
        "watch": watch.Options,
        **{f"data {name}": schema for name, (_, schema) in data.COMMANDS.items()},
        "report": ReportOptions,
        **{f"report {name}": schema for name, (_, schema) in report.COMMANDS.items()},
    }


def build_table() -> Completions:
    """Return the table. Slow, because it imports torch."""
    from cli import data, ls
    from cli.bench import BENCHMARKS
    from cli.report.command import COMMANDS
    from clipx.config.evaluation import EvalConfig
    from clipx.config.presets import DATA, OBJECTIVES
    from clipx.config.schema import RunConfig
    from clipx.objectives import TERMS
    from clipx.theory import THEORY
    from evaluation.datasets.captioned import HELD_OUT
    from evaluation.datasets.named import NAMED
    from evaluation.datasets.opening import LAYOUTS
    from evaluation.tasks import TASKS

    settings = _choices(RunConfig) | {"recipe": [], "arm": [], "data": list(DATA), "objective": list(OBJECTIVES)}
    for name, term in TERMS.items():
        settings |= {f"objective.{name}.{parameter}": [] for parameter in ("weight", *ls.parameters_of(term))}
    datasets = [*NAMED, HELD_OUT, *(f"{kind}:" for kind in LAYOUTS if kind != HELD_OUT)]
    values = {command: _choices(schema) for command, schema in options().items()}
    values |= {command: settings | values.get(command, {}) for command in WITH_SETTINGS}
    values |= {f"theory {name}": {"out": [], **_choices(problem.settings)} for name, problem in THEORY.items()}
    values["eval"] = _choices(EvalConfig) | {"tasks": list(TASKS), "datasets": datasets}
    recipes = {file.stem: _arms(file) for file in recipe_files(ROOT / "recipes") if file.stem != "base"}
    positional = {
        "ls": [*ls.LISTS, "settings"],
        "report": list(COMMANDS),
        "data": list(data.COMMANDS),
        "bench": list(BENCHMARKS),
        "theory": [*THEORY, "all"],
        "completion": list(SCRIPTS),
    }
    return {"positional": positional, "values": values, "arms": recipes}


def _choices(schema: type) -> dict[str, list[str]]:
    """Return key -> values to offer, of all settings of a schema."""
    found = settings_of(schema)
    return {
        key: FLAGS if isinstance(s.default, bool) else EXAMPLES.get(key, list(s.choices)) for key, s in found.items()
    }
