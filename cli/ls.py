"""clipx ls [recipes|terms|towers|data|tasks|claims|theory]

Prints names, each with a short description; without arguments those of the recipes.
clipx ls settings [PREFIX or WORD]: prints settings with default, unit, allowed values and meaning; for example
clipx ls settings train, clipx ls settings temperature.tau, clipx ls settings eval, clipx ls settings learning_rate.
clipx ls runs [DIR...]: prints the runs below DIR (default: runs), one line per run name with all its seeds, and the
settings that differ from those of its recipe and arm.
"""

import inspect
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path

from omegaconf import MISSING
from rich.table import Column, Table

from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig
from clipx.config.setting import settings_of
from clipx.errors import UserError
from clipx.utils.registry import did_you_mean, one_of
from clipx.utils.terminal import stdout_console

NOT_COMPARED = ("name", "seed", "recipe", "arm", "data.root")  # by `clipx ls runs`
EVAL = "eval"  # prefix under which the settings of `clipx eval` are listed


def ls(arguments: list[str]) -> None:
    """Print the lists with these names. Without a name, print the recipes, and say which other lists there are."""
    names = arguments or ["recipes"]
    at = next((place for place, name in enumerate(names) if name in WITH_ARGUMENTS), len(names))
    for name in [one_of(name, (*LISTS, *WITH_ARGUMENTS), "clipx ls") for name in names[:at]]:
        _print(Table("name", "description", title=name), LISTS[name]().items())
    if at < len(names):
        WITH_ARGUMENTS[names[at]](names[at + 1 :])
    if not arguments:  # the other lists are not printed unasked: most import torch, which takes seconds
        print(f"other lists: clipx ls {'|'.join([*LISTS, *WITH_ARGUMENTS][1:])}")


def _print(table: Table, rows: Iterable[tuple[str, ...]]) -> None:
    table.title_justify, table.box, table.pad_edge = "left", None, False
    for row in rows:
        table.add_row(*row)
    console = stdout_console()
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():  # in a pipe, rich fills the lines of a table with hundreds of spaces
        print(line.rstrip())


def _print_settings(prefixes: list[str]) -> None:
    """Print all settings, or those whose key starts with a prefix: key, default, unit and range, meaning.

    If no key starts with it, those that have it in their key or meaning.
    """
    known = settings_of(RunConfig) | settings_of(EvalConfig, f"{EVAL}.")
    allowed = {".".join(key.split(".")[:depth]) for key in known for depth in range(1, key.count(".") + 2)}
    chosen = {} if prefixes else known
    for prefix in prefixes:
        starting = {key: s for key, s in known.items() if key.startswith(prefix)}
        words = prefix.replace("_", " ")
        found = starting or {key: s for key, s in known.items() if prefix in key or words in s.meaning}
        if not found:
            top = ", ".join(sorted(name for name in allowed if "." not in name))
            near = did_you_mean(prefix, allowed).strip() or f"allowed: {top}"
            raise UserError(f"clipx ls settings {prefix} is not known; {near}")
        chosen |= found
    title = "settings (*: may change when a run resumes; eval.KEY: setting KEY of clipx eval)"
    table = Table(Column("key", no_wrap=True), "default", "unit, allowed", "meaning", title=title)
    rows = ((f"{key}{' *' * s.resumable}", _plain(s.default), s.allowed(), s.meaning) for key, s in chosen.items())
    _print(table, rows)


def _print_runs(folders: list[str]) -> None:
    """Print a line per run name: its seeds, their last steps, and the settings that differ from the recipe's."""
    from clipx.run.checkpoint import checkpoints, step_of
    from clipx.run.folder import CONFIG, RunFolder, runs_below

    paths = [Path(folder) for folder in folders or ["runs"]]
    if not (runs := runs_below(paths)):
        raise UserError(f"no run at or below {', '.join(map(str, paths))}; clipx ls runs FOLDER...")
    of_recipe, rows = cache(_settings_of_recipe), []
    for folder, found in groupby(runs, key=lambda run: run.parent):
        members = list(found)
        steps = sorted({step_of(saved[-1]) for run in members if (saved := checkpoints(run))})
        differing: dict[str, str] = {}  # settings without the seed -> those that differ
        for run in map(RunFolder, members):
            text = (run.path / CONFIG).read_text(encoding="utf-8", errors="replace") if run.has_config else ""
            if (settings := re.sub(r"^seed: .*$", "", text, flags=re.MULTILINE)) in differing:
                continue
            try:
                differing[settings] = _differing(of_recipe(run.config.recipe, run.config.arm), run.config)
            except UserError as error:  # a broken run must not hide the others
                problem, *hints = str(error).split("; ")
                differing[settings] = "; ".join([problem, *hints[-1:]]) if run.has_config else "no config.yaml"
        names = [run.name for run in members]
        seeds = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]} ({len(names)})"
        first_and_last = " .. ".join(map(str, steps[:: max(1, len(steps) - 1)]))
        shown = " | ".join(text or "as the recipe" for text in dict.fromkeys(differing.values()))
        rows.append((str(folder), seeds, first_and_last, shown))
    _print(Table("run", "seeds", "steps", "settings unlike the recipe's"), rows)


def _settings_of_recipe(name: str, arm: str) -> RunConfig:
    """Return the settings of a recipe's arm. Raises UserError if there is no such recipe or arm."""
    from cli.settings.compose import compose_run

    return compose_run([f"recipe={name}", *([f"arm={arm}"] if arm else []), "data.root=x"])


def _differing(expected: RunConfig, config: RunConfig) -> str:
    """Return the settings that change the results and differ from the recipe's, as a user types them."""
    from clipx.run.folder import identity_keys

    keys = [key for key in identity_keys() if key not in NOT_COMPARED]
    if config.data.source != "scenes":  # the run did not use the settings of rendered scenes
        keys = [key for key in keys if not key.startswith("data.scenes.")]
    values = {key: attrgetter(key) for key in keys}
    return " ".join(typed for key, get in values.items() for typed in _typed(key, get(config), get(expected)))


def _typed(key: str, value: object, expected: object) -> list[str]:
    """Return key=value if the value differs from the recipe's; of a dictionary, each key whose value differs."""
    if isinstance(value, dict) and value:
        known = expected if isinstance(expected, dict) else {}
        removed = [shlex.quote(f"~{key}.{name}") for name in known if name not in value]
        parts = [_typed(f"{key}.{name}", one, known.get(name, MISSING)) for name, one in value.items()]
        return [*removed, *chain(*parts)]
    return [] if value == expected else [shlex.quote(f"{key}={_plain(value)}")]


def _plain(default: object) -> str:
    """Return a default as a user would type it; "(required)" if there is none."""
    if default == MISSING:
        return "(required)"
    if default is None or isinstance(default, bool):
        return str(default).lower().replace("none", "null")
    return str(default) or '""'


def _recipes() -> dict[str, str]:
    """Return name -> first sentence and arms of each recipe."""
    from cli.settings.recipes import recipe, recipes

    rows = {}
    for name, path in recipes().items():
        try:
            arms = ", ".join(recipe(name).arms)
        except UserError as error:  # a broken recipe must not hide the others
            rows[name] = str(error)
            continue
        comment = " ".join(re.findall(r"^# ?(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))
        rows[name] = re.split(r"(?<=[.?]) ", comment)[0] + (f" Arms: {arms}" if arms else "")
    return rows


def parameters_of(term: Callable[..., object]) -> dict[str, object]:
    """Return the parameters of a term with their defaults."""
    known = inspect.signature(term).parameters.values()
    return {p.name: p.default for p in known if p.default is not p.empty}


def _terms() -> dict[str, str]:
    """Return name -> description of each term, with its parameters (objective.NAME.PARAMETER) and their defaults."""
    from clipx.objectives import TERMS

    rows = {}
    for name, term in TERMS.items():
        parameters = [f"{key}={_plain(default)}" for key, default in parameters_of(term).items()]
        description = f"{_first_line(inspect.getmodule(term))} {_first_line(term)}"
        rows[name] = f"{description} Parameters: {', '.join(['weight=1', *parameters])}"
    return rows


def _towers() -> dict[str, str]:
    from clipx.models.towers import build

    return build.describe_towers()


def _data() -> dict[str, str]:
    """Return name -> description of the training data sets, and of the data sets that `clipx eval` accepts."""
    from clipx.config.presets import DATA
    from clipx.data.sources.opening import meaning_of_root
    from evaluation.datasets.named import NAMED
    from evaluation.datasets.opening import LAYOUTS

    training = {}
    for name, node in DATA.items():
        root = meaning_of_root(name, node["source"], node.get("split", "train"))
        rendered = f"{node['scenes']['num_train']:,} rendered scenes, " if node["source"] == "scenes" else ""
        training[name] = f"{rendered}training data; data.root is {root}"
    named = {f"datasets=[{name}]": known.what for name, known in NAMED.items()}
    return training | named | {f"datasets=[{kind}:PLACE]": _first_line(opener) for kind, opener in LAYOUTS.items()}


def _tasks() -> dict[str, str]:
    from evaluation.tasks import TASKS

    only = {name: f" Features {task.variants[0]}." for name, task in TASKS.items() if len(task.variants) == 1}
    return {name: _first_line(type(task)) + only.get(name, "") for name, task in TASKS.items()}


def _claims() -> dict[str, str]:
    from evaluation.claims.table import CLAIMS

    return {c.id: f"{c.statement} [{', '.join(c.recipes) or c.program}]" for c in CLAIMS}


def _theory() -> dict[str, str]:
    from clipx.theory import THEORY

    return {name: _first_line(inspect.getmodule(e.settings)) for name, e in THEORY.items()}


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


LISTS: Mapping[str, Callable[[], dict[str, str]]] = {
    "recipes": _recipes,
    "terms": _terms,
    "towers": _towers,
    "data": _data,
    "tasks": _tasks,
    "claims": _claims,
    "theory": _theory,
}
# the words after one of these are its arguments
WITH_ARGUMENTS = {"settings": _print_settings, "runs": _print_runs}
