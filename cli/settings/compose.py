"""The only file that knows Hydra: recipe + overrides -> a typed config.

Recipes are flat YAML files, `data=` and `objective=` take the names of clipx.config.presets, all other settings are
the dataclasses of clipx.config.schema. Hydra's own switches (--cfg, -m, --config-dir, completion) keep working.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cli.settings import recipes as arms
from cli.settings.keys import check_key, is_free, suggest_key
from clipx.config import ranges
from clipx.config.presets import DATA, OBJECTIVES
from clipx.config.schema import EvalConfig, RunConfig
from clipx.errors import Fault, UserError
from clipx.utils.registry import lookup

UNNAMED = re.compile(r"^(recipe|name|seed|hydra[./].*)$")  # in a run's path already, or not of the run

GROUPS = ("recipe", "data", "objective")  # key=NAME chooses one of several
CHOICES = ("arm", "data", "objective")  # in a run's name by their value alone


def recipes() -> dict[str, Path]:
    """Recipe names and files: the installed ones, and those of --config-dir."""
    folders = [Path(str(files("recipes")))]
    for switch, value in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        if switch in ("--config-dir", "-cd"):
            folders.append(Path(value))
        elif switch.startswith("--config-dir="):
            folders.append(Path(switch.partition("=")[2]))
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise UserError(f"--config-dir={missing[0]} is not a folder")
    return {p.stem: p for folder in folders for p in sorted(folder.glob("*.yaml")) if p.stem != "base"}


def run_command(task: Callable[[RunConfig], None], arguments: list[str]) -> None:
    """Composes and calls `task`, once, or once for each job of a sweep (-m).

    Raises:
        UserError: whatever is wrong with the arguments, in one line.
    """
    arguments, from_arm = _expanded(arguments)
    sys.argv = ["clipx train", *arguments]
    _register()
    if not any(a.startswith(("--hydra-help", "--info")) for a in arguments):
        _check_overrides([a for a in arguments if "=" in a and not a.startswith("-")])

    failures: list[UserError | Fault] = []

    def job(config: DictConfig) -> None:
        # Hydra would print its own lines around an exception, and a sweep goes on after a failed job
        try:
            task(_to_run_config(config, HydraConfig.get().overrides.task, from_arm))
        except (UserError, Fault) as error:
            if os.getpid() != here:
                raise  # a launcher's job elsewhere: its failure comes back as what it raised
            failures.append(error)

    here = os.getpid()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # exceptions reach us instead of being printed
    _translated(lambda: hydra.main(version_base="1.3", config_path="pkg://recipes", config_name="base")(job)())
    if failures:
        kind = Fault if any(type(failure) is Fault for failure in failures) else UserError
        raise kind("; ".join(map(str, failures)))


def complete(arguments: list[str]) -> None:
    """Hydra's shell completion of `clipx train`: `-sc install=bash`, and the queries of the installed script."""
    sys.argv = ["clipx", *arguments]
    if line := os.environ.get("COMP_LINE"):  # Hydra knows of no subcommand
        os.environ["COMP_LINE"] = re.sub(r"^(\S+)\s+train\s", r"\1 ", line)
    _register()
    hydra.main(version_base="1.3", config_path="pkg://recipes", config_name="base")(lambda config: None)()


def compose_run(overrides: list[str]) -> RunConfig:
    """The config of one run, for commands that do not train.

    Raises:
        UserError: as run_command.
    """
    overrides, from_arm = _expanded(overrides)
    _register()
    _check_overrides(overrides)
    with hydra.initialize_config_module("recipes", version_base="1.3"):
        config = _translated(lambda: hydra.compose("base", overrides))
        return _to_run_config(config, overrides, from_arm)


def compose_eval(overrides: list[str]) -> EvalConfig:
    """The config of `clipx eval`.

    Raises:
        UserError: as run_command.
    """
    _register()
    for override in _parse(overrides):
        check_key(EvalConfig, str(override.key_or_group))
    with hydra.initialize_config_module("recipes", version_base="1.3"):
        config = _translated(lambda: OmegaConf.to_object(hydra.compose("eval", overrides)), EvalConfig)
    assert isinstance(config, EvalConfig)
    ranges.check(config, ranges.EVALUATION)
    return config


def _register() -> None:
    store = ConfigStore.instance()
    store.store(name="schema", node=RunConfig)
    store.store(name="eval", node=EvalConfig)
    for name, data in DATA.items():
        store.store(group="data", name=name, node=data)
    for name, objective in OBJECTIVES.items():
        store.store(group="objective", name=name, node=objective)
    for name, path in recipes().items():
        store.store(group="recipe", name=name, node=arms.load(path).settings, package="_global_")


def recipe(name: str) -> arms.Recipe:
    """A recipe with its arms and seeds.

    Raises:
        UserError: no such recipe, or one that is no valid YAML.
    """
    return arms.load(lookup(recipes(), name, "recipe"))


def _expanded(arguments: list[str]) -> tuple[list[str], set[str]]:
    """Arguments as Hydra takes them, and those among them that an arm stands for."""
    chosen = next((a.removeprefix("recipe=") for a in arguments if a.startswith("recipe=")), "")
    given, from_arm = arms.expand(arguments, recipe(chosen).arms if chosen in recipes() else {})
    # parameters of a term need not stand in the recipe to be set: Hydra would ask for a + in front
    prefixed = {a: f"++{a}" if a.startswith("objective.") else a for a in given}
    return [prefixed[a] for a in given], {prefixed[a] for a in from_arm}


def _parse(overrides: list[str]) -> list[Any]:
    parsed = []
    for override in overrides:
        try:
            parsed += OverridesParser.create().parse_overrides([override])
        except HydraException as error:
            raise UserError(
                f"{override} is not of the form key=value; a value with = , : {{ }} or [ ] in it is quoted twice, "
                f"\"key='value'\" ({_line(error).partition(' See ')[0]})"
            ) from error
    return parsed


def _check_overrides(overrides: list[str]) -> None:
    """Every key and group choice, with or without +, before Hydra looks at it."""
    groups: dict[str, Mapping[str, Any]] = {"recipe": recipes(), "data": DATA, "objective": OBJECTIVES}
    given = _parse(overrides)
    for override in given:
        key, value = str(override.key_or_group), override.value()
        if key in GROUPS:
            if isinstance(value, str):
                lookup(groups[key], value, key)
            elif not override.is_sweep_override():
                raise UserError(f"{key}={value} must be one name; allowed: {', '.join(groups[key])}")
        elif key != "hydra" and not key.startswith(("hydra.", "hydra/")):
            check_key(RunConfig, key)
    if not any(str(o.key_or_group) == "recipe" for o in given):
        raise UserError(f"recipe= is missing; allowed: {', '.join(recipes())}")


def _to_run_config(composed: DictConfig, overrides: list[str], from_arm: set[str]) -> RunConfig:
    with_names = composed.copy()
    choices = dict(o.split("=", 1) for o in overrides if "=" in o)
    with_names.recipe = choices["recipe"]  # also where Hydra's runtime is not there to be asked
    if OmegaConf.is_missing(with_names, "name"):
        with_names.name = "-".join([choices["recipe"], *_name_parts([o for o in overrides if o not in from_arm])])
    config = _translated(lambda: OmegaConf.to_object(with_names))
    assert isinstance(config, RunConfig)
    ranges.check(config, ranges.RUN)
    ranges.check_together(config)
    return config


def _name_parts(overrides: list[str]) -> list[str]:
    """What sets this run apart from others of its recipe: `flickr8k` for data=flickr8k, else `key_value`.

    In an order of their own, so that the same settings in another order are the same run. Only characters that are
    safe in folder names and need no quotes in an override.
    """
    choices, settings = {}, {}
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in CHOICES:
            choices[key] = value
        elif not UNNAMED.match(key) and not is_free(RunConfig, key):
            settings[key] = f"{key}_{value}"
    parts = [choices[key] for key in CHOICES if key in choices] + [settings[key] for key in sorted(settings)]
    return [re.sub(r"[^\w.+-]+", "_", part).strip("_") for part in parts]


def _translated(call: Callable[[], Any], schema: type = RunConfig) -> Any:
    """Calls; what Hydra or OmegaConf have to say about the user's input becomes one line."""
    try:
        return call()
    except (HydraException, OmegaConfBaseException) as error:
        if "hydra/launcher/submitit" in str(error):
            raise UserError(
                "hydra/launcher=submitit_slurm needs the extra `slurm`: pip install -e '.[slurm]' in the checkout"
            ) from error
        key = re.search(r"full_key: (\S+)", f"{error}\n{error.__cause__}")
        near = suggest_key(schema, key[1]) if key else ""
        hint = f" ({near})" if near else ""
        cause = f": {_line(error.__cause__)}" if error.__cause__ else ""
        raise UserError(f"{_line(error)}{cause}{hint}") from error


def _line(error: BaseException) -> str:
    lines = [part.strip() for part in str(error).splitlines() if part.strip()]
    return " ".join(p for p in lines if not p.startswith(("full_key", "object_type", "reference_type")))
