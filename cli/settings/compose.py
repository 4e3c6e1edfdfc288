"""Compose a typed config from recipe and overrides. The only file that imports Hydra.

Recipes are YAML files; one may start from another (`defaults: [NAME]`). `data=` and `objective=` take names of
clipx.config.presets; all other settings are fields of clipx.config.schema. Hydra's options (--cfg, -m, --config-dir)
work.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ValueType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cli.settings.arguments import (
    argparse_error,
    as_hydra_writes,
    key_of,
    names_plugins,
    permit_plugins,
    plugin_names,
    refuse_duplicates,
    refuse_together,
    shows_config,
    split_positional,
    with_plugin_list,
)  # fmt: skip
from cli.settings.recipes import (
    GROUPS,
    NOTIFY,
    Recipe,
    by_group,
    chosen_objectives,
    data_sets,
    expand_arm,
    load_recipe,
    objectives,
    recipe,
    recipes,
    with_bases,
)
from clipx.config.evaluation import EvalConfig
from clipx.config.presets import check_combinations, fill_in_bias
from clipx.config.schema import ARM_PREFIX, RunConfig
from clipx.config.setting import check, check_key, from_values, settings_of
from clipx.errors import Fault, UserError, most_severe, of_all_runs
from clipx.utils.files import content_hash
from clipx.utils.plugins import load_plugins, load_plugins_of_file
from clipx.utils.registry import lookup
from clipx.utils.trust import is_permitted, permit, refuse_new_root, starts_program

_stored: dict[str, Recipe | str] = {}  # last put into Hydra's store: recipe name -> recipe; "" -> the presets
UNNAMED = re.compile(r"^(recipe|name|seed|hydra[./].*)$")  # keys that a run's name leaves out
REMOVED = re.compile(r"^~objective\.\w+$")  # removes a term from the objective
CHOICES = ("arm", "data", "objective")  # a run's name has their values without the keys
LONGEST_NAME = 255  # bytes that all common file systems allow in a folder name
SHORT = 60  # characters of settings in the name of a run


def run_command(
    task: Callable[[RunConfig], None], arguments: list[str], check: Callable[[RunConfig], None] = lambda config: None
) -> None:
    """Compose the config and call `task` once, or once per job of a sweep (-m).

    `check` is called for every job of a sweep before the first one starts, and raises UserError for a wrong config.

    Raises UserError: invalid arguments; in a sweep, before the first job. Afterwards raises the first OSError of
    the runs, else a UserError or Fault with the errors of all.
    """
    given, options = _split_options(arguments)
    overrides, from_arm = _expand(_quoted(given))
    sys.argv = ["clipx train", *overrides, *options]
    _register(overrides)
    is_sweep = bool({"-m", "--multirun"} & set(options))
    if not any(option.startswith(("--hydra-help", "--info", "-i")) for option in options):
        _check_overrides(overrides)
        if is_sweep:
            _check_jobs(_parse(overrides), lambda job: _typed(job, from_arm), check)
        else:
            _refuse_several(_parse(overrides))
            if shows_config(options):
                print(OmegaConf.to_yaml(OmegaConf.structured(_typed(overrides, from_arm))), end="")
                return

    failures = list[tuple[str, Exception]]()
    parent, command = os.getpid(), sys.argv

    def job(config: DictConfig) -> None:
        # collect the exceptions: after an exception, Hydra would print extra lines and end the sweep
        where = ""
        sys.argv = command  # in another launcher's process; recipes() looks for --config-dir there
        try:
            of_run = _to_run_config(config.copy(), HydraConfig.get().overrides.task, from_arm)
            if is_sweep:
                where = f"{of_run.name}/s{of_run.seed}: "
                print(f"run {HydraConfig.get().job.num + 1}: {of_run.name}/s{of_run.seed}", file=sys.stderr, flush=True)
            task(of_run)
        except (UserError, Fault, OSError) as error:
            if os.getpid() != parent:
                raise  # Hydra's launcher sends it to the parent process
            failures.append((where, error))

    logging.getLogger("hydra").setLevel(logging.WARNING)  # not "Launching 2 jobs locally"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises exceptions instead of printing them
    _translate_errors(lambda: hydra.main(version_base="1.3", config_path="pkg://recipes", config_name="base")(job)())
    for _, error in failures:
        if isinstance(error, OSError):
            raise error
    if failures:
        raise most_severe([error for _, error in failures])(of_all_runs(failures))


def submitted_runs(arguments: list[str]) -> list[list[str]]:
    """Return the overrides of each run of `clipx train` with launch.slurm=; [] if it is not set, or with --cfg.

    Raises UserError: invalid arguments.
    """
    if shows_config(arguments) or not texts_of(arguments, "launch.slurm"):
        return []
    given, options = _split_options(arguments)
    return _jobs(_parse(_quoted(given))) if {"-m", "--multirun"} & set(options) else [given]


def _split_options(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split overrides from Hydra's options with their values: Hydra refuses overrides on both sides of an option.

    Raises UserError: an option is unknown, lacks its value or has a wrong value.
    """
    parser = get_args_parser()
    parser.error = argparse_error  # type: ignore[method-assign]
    given = parser.parse_intermixed_args(arguments)
    refuse_together(given)
    return given.overrides, [argument for argument in arguments if argument not in given.overrides]


def compose_run(overrides: list[str]) -> RunConfig:
    """Compose the config of one run. Raises UserError: invalid overrides, or several values for a key."""
    overrides, from_arm = _expand(_quoted(overrides))
    _register(overrides)
    _check_overrides(overrides)
    _refuse_several(_parse(overrides))
    return _typed(overrides, from_arm)


def _typed(overrides: list[str], from_arm: set[str]) -> RunConfig:
    """Compose the config of one run from checked overrides; `from_arm`: keys that arm=NAME set."""

    def composed() -> DictConfig:
        groups, terms, values = _split_overrides(overrides)
        config = _compose_groups(tuple(groups)).copy()
        if terms:
            OmegaConf.update(config, "objective", terms, merge=False)
        ConfigLoaderImpl._apply_overrides_to_config(_parse(values), config)
        return config

    return _to_run_config(_translate_errors(composed), overrides, from_arm)


def _split_overrides(overrides: list[str]) -> tuple[list[str], Any, list[str]]:
    """Split overrides into those that Hydra composes (few: it is slow), the objective's terms, and single settings."""
    groups = [o for o in overrides if key_of(o) in GROUPS or key_of(o).startswith("hydra")]
    values = [o for o in overrides if o not in groups]
    chosen = _choices(groups)
    if "objective" not in chosen:
        return groups, {}, values
    others = [o for o in groups if key_of(o) != "objective"]
    of_recipes = [found.settings.get("objective", {}) for found in reversed(with_bases(chosen["recipe"]))]
    terms = OmegaConf.merge(objectives(chosen_objectives(overrides))[chosen["objective"]], *of_recipes)
    return others, terms, values


def _choices(overrides: list[str]) -> dict[str, Any]:
    """Return the chosen recipe, data and objective, without quotes; several values are an object of Hydra."""
    return {str(o.key_or_group): o.value() for o in _parse([o for o in overrides if key_of(o) in GROUPS])}


@cache
def _compose_groups(groups: tuple[str, ...]) -> DictConfig:
    with hydra.initialize_config_module("recipes", version_base="1.3"):
        return hydra.compose("base", list(groups))


def compose_evals(arguments: list[str]) -> tuple[EvalConfig, list[str]]:
    """Return the config of `clipx eval`, and its runs. An empty name is left out: it would be this folder.

    The runs are the arguments without a key, then the values of checkpoint=. Raises UserError: invalid overrides.
    """
    runs, overrides = split_positional(arguments)
    overrides = _quoted(overrides)
    runs += texts_of(overrides, "checkpoint")
    return compose_eval([o for o in overrides if key_of(o) != "checkpoint"]), [*filter(None, runs)]


def texts_of(overrides: list[str], *keys: str) -> list[str]:
    """Return the values of these keys without quotes; all entries of lists, and of several values such as a,b.

    Raises UserError: an override of these keys is not of the form key=value.
    """
    found = []
    for override in _parse(_quoted([o for o in overrides if key_of(o) in keys])):
        value = override.value()
        value = getattr(value, "list", value)
        values = value if isinstance(value, list) else [value]
        found += [str(getattr(one, "text", one)) for one in values if one is not None]  # `text` of a quoted string
    return found


def compose_eval(overrides: list[str]) -> EvalConfig:
    """Compose the config of an evaluation of one model. Raises UserError: invalid overrides."""
    overrides = with_plugin_list(_quoted(overrides))
    load_plugins(permit_plugins(overrides))
    refuse_duplicates(overrides)
    for override in _parse(overrides):
        check_key(EvalConfig, str(override.key_or_group))
        if override.is_sweep_override():
            raise UserError(f"{override.input_line}: run a command per value, or write a list as [a,b]")
    values = OmegaConf.create(asdict(EvalConfig()))
    _translate_errors(lambda: ConfigLoaderImpl._apply_overrides_to_config(_parse(overrides), values))
    config = from_values(EvalConfig, _values_of(values))
    check(config)
    return config


def _register(overrides: list[str]) -> None:
    """Store schema, presets and the chosen recipes where Hydra finds them.

    Hydra copies the whole store at each composition, so other recipes leave it. Storing is slow, so what has not
    changed is not stored again.
    """
    store = ConfigStore.instance()
    data, known = data_sets(), objectives(chosen_objectives(overrides))
    presets = repr((data, known))
    if _stored.get("") != presets:
        _stored[""] = presets
        _compose_groups.cache_clear()
        store.store(name="schema", node=asdict(RunConfig()))  # without types, which from_values checks in the end
        for name, settings in data.items():
            store.store(group="data", name=name, node={"name": name, **settings})
        for name, objective in known.items():
            store.store(group="objective", name=name, node=objective)
    needed, kept = _needed_recipes(overrides), store.repo.setdefault("recipe", {})
    for file in {*kept} - {f"{name}.yaml" for name in needed}:
        del kept[file]
    for name, found in needed.items():
        if name in _stored and _stored[name] is not found:
            _compose_groups.cache_clear()
        if _stored.get(name) is not found or f"{name}.yaml" not in kept:
            store.store(group="recipe", name=name, node=found.settings, package="_global_")
            _stored[name] = found


def _needed_recipes(overrides: list[str]) -> dict[str, Recipe]:
    """Return name -> chosen recipes and those that they start from."""
    known, found, names = recipes(), dict[str, Recipe](), texts_of(overrides, "recipe")
    while names:
        name = names.pop()
        if name in known and name not in found:
            with suppress(UserError):  # a broken recipe must not block the others; the chosen recipe was read before
                found[name] = load_recipe(known[name])
                names += found[name].bases
    return found


def _expand(arguments: list[str]) -> tuple[list[str], set[str]]:
    """Return all arguments in Hydra's form, and the keys that arm=NAME sets; load the plug-ins."""
    load_plugins(permit_plugins(arguments))  # first, because a plug-in may add recipes
    chosen = _choices([a for a in arguments if "=" in a]).get("recipe", "")
    found = recipe(chosen) if isinstance(chosen, str) and chosen else None
    if not chosen and (word := next((a for a in arguments if a in recipes()), "")):
        raise UserError(f"{word} is not of the form key=value; did you mean recipe={word}?")
    given, from_arm = expand_arm(arguments, found.arms if found else {})
    given = with_plugin_list(given)
    if found and not any(map(names_plugins, given)):
        load_plugins_of_file(found.plugins)
    # ++ sets a term's parameter even if the recipe does not contain it; without ++ Hydra asks the user for a +
    prefixed = {a: f"++{a}" if a.startswith("objective.") else a for a in given}
    return [prefixed[a] for a in given], set(map(key_of, from_arm))


def _quoted(overrides: list[str]) -> list[str]:
    """Quote values that Hydra cannot parse, such as paths with ü, spaces or brackets."""
    return [_quoted_one(override) for override in overrides]


def _quoted_one(override: str) -> str:
    key, _, value = override.partition("=")
    if not value or _is_parsed(override):
        return override
    is_list = value[0] == "[" and value[-1] == "]"
    texts = value[1:-1].split(",") if is_list else [value]
    texts = [text if _is_parsed(f"{key}={text}") else "'{}'".format(text.replace("'", r"\'")) for text in texts]
    quoted = f"{key}=[{','.join(texts)}]" if is_list else f"{key}={texts[0]}"
    return quoted if _is_parsed(quoted) else override


def _is_parsed(override: str) -> bool:
    try:
        return bool(_parse_one(override))
    except UserError:
        return False


def _parse(overrides: list[str]) -> list[Any]:
    return [parsed for override in overrides for parsed in _parse_one(override)]


@cache
def _parse_one(override: str) -> list[Any]:
    try:
        parsed: list[Any] = OverridesParser.create().parse_overrides([override])
    except HydraException as error:
        message = f"{override} is not of the form key=value"
        if "=" in override:
            message += "; put a value with = , : { } or [ ] in two kinds of quotes: \"key='value'\""
        raise UserError(message) from error
    if any(one.value_type is ValueType.GLOB_CHOICE_SWEEP for one in parsed):
        raise UserError(f"{override}: write the names, separated by commas, in place of a pattern")
    return parsed


def _check_overrides(overrides: list[str]) -> None:
    """Check all keys (also those with +) and choices of groups before Hydra does."""
    refuse_duplicates(overrides)
    groups, parsed = by_group(chosen_objectives(overrides)), _parse(overrides)
    for override in parsed:
        key, value = str(override.key_or_group), override.value()
        if key in groups:
            if not isinstance(value, str) and not override.is_sweep_override():
                raise UserError(f"{key}={value} must be one name; allowed: {', '.join(groups[key])}")
            for name in texts_of([override.input_line], key):
                unloaded = key == "objective" and name not in plugin_names(overrides)
                if unloaded and name not in groups[key] and Path(f"{name}.py").is_file():
                    raise UserError(f"{key}={name} is not known; {name}.py is here: add plugins=[{name}]")
                lookup(groups[key], name, key)
        elif key != "hydra" and not key.startswith(("hydra.", "hydra/")):
            check_key(RunConfig, key)
            if override.is_delete() and not key.startswith("objective."):
                raise UserError(f"{override.input_line}: only terms of the objective can be removed, ~objective.TERM")
    if not any(str(o.key_or_group) == "recipe" for o in parsed):
        raise UserError(f"recipe= is missing; allowed: {', '.join(recipes())}")


def _to_run_config(with_names: DictConfig, overrides: list[str], from_arm: set[str]) -> RunConfig:
    """Fill in recipe and name, check the values, and return the typed config; `from_arm`: keys that arm=NAME set."""
    with_names.recipe = chosen = _choices(overrides)["recipe"]
    typed = [o for o in overrides if key_of(o) not in from_arm]
    if OmegaConf.is_missing(with_names, "name"):
        with_names.name = _translate_errors(lambda: _run_name(chosen, typed, with_names))
    values = _values_of(with_names)
    try:
        config = from_values(RunConfig, values)
    except UserError:
        if missing := sorted(OmegaConf.missing_keys(with_names)):
            hint = "add them to the recipe or the command; `clipx ls towers` lists towers"
            raise UserError(f"recipe={chosen} does not set {', '.join(missing)}: {hint}") from None
        raise
    permit("programs", [url for url in texts_of(typed, "data.urls", "data.root") if starts_program(url)])
    permit("programs", texts_of(typed, NOTIFY))
    if config.log.notify and not is_permitted("programs", config.log.notify):
        raise UserError(f"{NOTIFY}={config.log.notify} starts a program: it may only be set on the command line")
    permit("roots", texts_of(typed, "data.root"))
    refuse_new_root(config.data.source, config.data.root)
    load_plugins_of_file(config.plugins)
    fill_in_bias(config)
    check(config)
    check_combinations(config)
    for key, name in (("init", config.model.init), ("teacher", config.model.teacher)):
        if name and name.startswith(ARM_PREFIX):
            if not (known := recipe(config.recipe).arms):
                raise UserError(f"model.{key}={name}: recipe={config.recipe} has no arms; give the path of a run")
            lookup({f"{ARM_PREFIX}{arm}": arm for arm in known}, name, f"model.{key}")
    return config


def _values_of(config: DictConfig) -> Any:
    """Return the values of a composed config, with references replaced; `???` for a missing one."""
    return _translate_errors(lambda: OmegaConf.to_container(config, resolve=True))


def _translate_errors(call: Callable[[], Any]) -> Any:
    """Call `call`; convert errors of Hydra and OmegaConf into a one-line UserError."""
    try:
        return call()
    except (HydraException, OmegaConfBaseException) as error:
        unknown = re.search(r"Could not find '(\w+)/([^']+)'", str(error))  # for example in a recipe's defaults
        if unknown and unknown[1] in GROUPS:
            lookup(by_group([unknown[2]])[unknown[1]], unknown[2], unknown[1])
        raise UserError(": ".join(map(_line_of, filter(None, (error, error.__cause__))))) from error


def _line_of(error: BaseException) -> str:
    """Return the error's text in one line, without the lines in which OmegaConf names keys and types."""
    lines = [part.strip() for part in str(error).splitlines() if part.strip()]
    return " ".join(p for p in lines if not p.startswith(("full_key", "object_type", "reference_type")))


def _run_name(recipe: str, overrides: list[str], config: DictConfig) -> str:
    """Return RECIPE-ARM-SETTINGS; settings longer than SHORT are cut and get a hash.

    `config`: of the run. A run of an earlier version keeps its uncut name.
    """
    parts = _parts_of_name(overrides, config.objective)
    arm = parts[:1] if any(key_of(override) == "arm" for override in overrides) else []
    settings, whole = "-".join(parts[len(arm) :]), "-".join([recipe, *parts])
    if len(settings) <= SHORT or (len(whole) <= LONGEST_NAME and Path(config.runs, whole).is_dir()):
        return whole
    return "-".join([recipe, *arm, settings[:SHORT].rstrip("-_."), content_hash(settings)[:8]])


def _parts_of_name(overrides: list[str], terms: Iterable[Any]) -> list[str]:
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
            settings[key] = f"{key}_{as_hydra_writes(value)}"
    if any(REMOVED.match(override) for override in overrides):
        choices["objective"] = "+".join(map(str, terms))
    parts = [choices[key] for key in CHOICES if key in choices] + [settings[key] for key in sorted(settings)]
    return [re.sub(r"[^\w.+-]+", "_", part, flags=re.ASCII).strip("_") for part in parts]


def _check_jobs(
    parsed: list[Any], compose: Callable[[list[str]], RunConfig], check: Callable[[RunConfig], None]
) -> None:
    """Raise UserError before a sweep (-m) starts if a job has wrong settings, or two jobs would share a run directory.

    `parsed`: the overrides as Hydra parses them; `compose` returns the config of a job from its overrides;
    `check` as in `run_command`.
    """
    if any(override.key_or_group == "hydra/sweeper" for override in parsed):
        return  # another sweeper may choose the values one after the other
    problems, configs, swept_of = list[str](), dict[str, RunConfig](), dict[tuple[str, int], str]()
    given = {override.input_line for override in parsed}
    for job in _jobs(parsed):
        swept = " ".join(override for override in job if override not in given)
        try:
            configs[swept] = config = compose(job)
        except UserError as error:
            problems.append(f"{swept}: {error}")
            continue
        other = swept_of.setdefault((config.name, config.seed), swept)
        if other != swept:
            problems.append(
                f"{other} and {swept} would share the folder {config.name}/s{config.seed}: leave name= out; "
                "settings that do not change the result are not in a run's name"
            )
    if not problems:
        for swept, config in configs.items():
            try:
                check(config)
            except UserError as error:
                problems.append(f"{swept}: {error}")
    if problems:
        raise UserError("; ".join(problems))


def _refuse_several(parsed: list[Any]) -> None:
    """Raise UserError if a key has several values."""
    if several := next((override for override in parsed if override.is_sweep_override()), None):
        raise UserError(f"{several.input_line.lstrip('+')}: several values need clipx train -m")


def _jobs(parsed: list[Any]) -> list[list[str]]:
    """Return the overrides of each job, as Hydra's default sweeper splits them."""
    choices = []
    for override in parsed:
        values = [override.input_line]
        if override.is_sweep_override() and override.is_discrete_sweep():
            values = [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
        choices.append(values)
    return [list(job) for job in product(*choices)]
