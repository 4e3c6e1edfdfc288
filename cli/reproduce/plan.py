"""The runs of `clipx reproduce`, and the design of each recipe, stored in the folder of the runs before the first seed.

A design has the looks of its recipe: the numbers of seeds at which the claims are judged.
"""

import shlex
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from cli.settings.arguments import key_of, split_given, take_options
from cli.settings.compose import compose_run, texts_of
from cli.settings.recipes import recipe
from clipx.config.presets import DATA
from clipx.config.schema import RunConfig
from clipx.config.setting import AT_LEAST_1, Rule, between, setting
from clipx.errors import UserError
from clipx.run.folder import RunFolder, earlier_runs, identity_keys
from clipx.training.devices import DEVICES
from clipx.utils.registry import one_of
from evaluation.claims.design import (
    LOOKS,
    LOOKS_WITHOUT_DESIGN,
    REPLICATION,
    Design,
    Looks,
    check_looks,
    describe_claims,
    equal_errors,
    hash_of,
    spent_errors,
    stored,
)
from evaluation.claims.table import claims_of

OF_A_RUN = ("name", "arm", "seed")  # settings that are no part of a design
FIRST_SEEDS: Rule = (lambda seed: seed in (0, REPLICATION.start), "0 (verdicts), 100 (replication); 1000: clipx tune")


@dataclass(kw_only=True)
class Options:
    """The options of `clipx reproduce`; all other arguments are settings of every run."""

    recipe: list[str] = setting([], "recipes to run")
    arms: list[str] = setting([], "some of their arms; empty: all")
    seeds: int | None = setting(None, "seeds of each arm", AT_LEAST_1)
    first_seed: int = setting(0, "first of them: 0 for verdicts, 100 for a replication", FIRST_SEEDS)
    scale: list[str] = setting([], "axes of the ladders to run; empty: every run once, as the recipe says")
    jobs: int | None = setting(None, "runs at the same time; null: one on each GPU, with launch.slurm all", AT_LEAST_1)
    report: bool = setting(False, "only write the report of the finished runs")
    dry: bool = setting(False, "only list the runs and their cost")
    out: str = setting("", "folder of the report")
    looks: list[int] = setting([], "numbers of seeds at which claims are judged")
    device: str | None = setting(None, "with dry=true: GPU of the estimated cost", choices=tuple(DEVICES))
    share: float | None = setting(None, "with dry=true: share of its peak FLOP/s that a step reaches", between(0.01, 1))


@dataclass(frozen=True)
class PlannedRun:
    """A run that may be trained."""

    overrides: list[str]  # of `clipx train`
    config: RunConfig

    @property
    def folder(self) -> Path:
        """The run directory."""
        return RunFolder.of(self.config).path

    @property
    def parents(self) -> list[Path]:
        """The runs that must be trained first: the run of model.init and the run of model.teacher."""
        return earlier_runs(self.config)

    @property
    def arm(self) -> tuple[str, str]:
        """Recipe and arm."""
        return self.config.recipe, self.config.arm


@dataclass(frozen=True)
class Plan:
    """The parsed arguments of `clipx reproduce`."""

    command: str  # the command line, shown in the report
    options: Options
    settings: list[str]  # of all runs
    overrides: list[list[str]]  # of `clipx train`, for each run; seed by seed, so that early results compare arms
    runs: Path  # folder of the runs
    looks: dict[str, Looks]  # recipe -> its looks; {} for ladders

    @property
    def out(self) -> Path:
        """The folder of the report."""
        return Path(self.options.out or self.runs / f"{'+'.join(self.options.recipe)}-report")


def make_plan(arguments: list[str]) -> Plan:
    """Parse the arguments of `clipx reproduce`; all other arguments are settings of every run.

    Raises UserError: an invalid argument.
    """
    options, others = take_options(arguments, Options, "reproduce")
    roots, settings = split_given(others, DATA)
    _check(options, settings)
    data_roots = _data_roots(options.recipe, roots, settings)
    folder = Path(next(iter(texts_of(settings, "runs")), "runs"))
    options.recipe, options.scale = ([*dict.fromkeys(names)] for names in (options.recipe, options.scale))
    names = [name for name in options.recipe if not options.arms or {*options.arms} & {*recipe(name).arms}]
    looks = {name: _looks(options.looks, folder, name) for name in names}
    overrides = []
    for name in names:
        of_all = [*data_roots.get(name, []), *settings]
        seeds = range(options.first_seed, options.first_seed + _seeds(name, options, looks[name]))
        points = [point for axis in options.scale for point in recipe(name).points(axis)] or [[]]
        overrides += [run for point in points for run in _runs_of_recipe(name, options.arms, seeds, of_all, point)]
    command = shlex.join(["clipx", "reproduce", *arguments])
    return Plan(command, options, settings, overrides, folder, {} if options.scale else looks)


def designs_of(plan: Plan) -> list[Design]:
    """Return the design of each recipe that tests claims.

    A design contains all arms of its recipe, so that arms= may run a part of them. It leaves out settings that
    change no result (paths, devices, workers, saving, logging). Runs under the settings of a control have none: they
    are judged with the design of the runs that they check.
    """
    names = [name for name in plan.looks if claims_of(name) and not _is_control(name, plan)]
    return [_design(name, plan.looks[name], plan.settings) for name in names]


def _is_control(name: str, plan: Plan) -> bool:
    given, config = set(map(key_of, plan.settings)), compose_run([f"recipe={name}", *plan.settings])
    return any(
        all(key in given and attrgetter(key)(config) == value for key, value in control.settings)
        for claim in claims_of(name)
        for control in claim.controls_of(name)
    )


def _design(name: str, looks: Looks, settings: list[str]) -> Design:
    found, config = recipe(name), compose_run([f"recipe={name}", *settings])
    values = {key: attrgetter(key)(config) for key in identity_keys() if key not in OF_A_RUN}
    hashed = hash_of({"settings": values, "arms": found.arms, "evaluations": found.evaluations})
    sets = tuple(config.data.evaluation)
    errors = tuple(looks.values())
    return Design(name, hashed, tuple(found.arms), tuple(looks), describe_claims(name), sets, found.failed_loss, errors)


def composed(overrides: list[list[str]]) -> list[RunConfig]:
    """Return the config of each run. Composing is slow, so runs that differ only in their seed are composed once.

    The exception are runs whose overrides use the seed, such as model.init='runs/a/s${seed}'.
    """
    known: dict[tuple[str, ...], RunConfig] = {}
    configs = []
    for of_run in overrides:
        (seed,) = (o for o in of_run if o.startswith("seed="))
        uses_seed = any("${" in override for override in of_run)
        others = tuple(o for o in of_run if uses_seed or o is not seed)
        if others not in known:
            known[others] = compose_run(of_run)
        configs.append(replace(known[others], seed=int(seed.removeprefix("seed="))))
    return configs


def parents_first(runs: list[PlannedRun]) -> list[PlannedRun]:
    """Return the runs in the given order, but move the runs that a run starts from or learns from before it.

    Raises UserError: arms start from each other.
    """
    by_folder = {run.folder: run for run in runs}
    placed: dict[Path, PlannedRun] = {}

    def place(folder: Path, children: tuple[Path, ...]) -> None:
        if folder in children:
            circle = (*children[children.index(folder) :], folder)
            names = " -> ".join(by_folder[each].config.arm for each in circle)
            raise UserError(f"model.init, model.teacher: the arms {names} start from each other")
        for parent in by_folder[folder].parents:
            if parent in by_folder and parent not in placed:
                place(parent, (*children, folder))
        placed.setdefault(folder, by_folder[folder])

    for folder in by_folder:
        place(folder, ())
    return list(placed.values())


def _data_roots(names: list[str], roots: dict[str, str], settings: list[str]) -> dict[str, list[str]]:
    """Return recipe -> its data.root= override, from arguments such as cc3m=DIR."""
    if not roots:
        return {}
    first = {name: [f"arm={arm}" for arm in recipe(name).arms][:1] for name in names}
    data = {name: compose_run([f"recipe={name}", *first[name], *settings]).data.name for name in names}
    for key, root in roots.items():
        if key not in data.values():
            raise UserError(f"{key}={root}: no recipe here uses {key}, only {', '.join(data.values())}")
    return {name: [f"data.root={roots[used]}"] for name, used in data.items() if used in roots}


def _check(options: Options, settings: list[str]) -> None:
    """Raise UserError for settings of one run, and for options that contradict or need each other."""
    for text in settings:
        key, _, value = text.partition("=")
        if key in ("arm", "seed"):
            correct = f"arms={value} (names, separated by commas)" if key == "arm" else "seeds=3 (their number)"
            raise UserError(f"{text} is for clipx train; here write {correct}")
    if not options.recipe:
        raise UserError("recipe= is missing: clipx reproduce recipe=NAME[,NAME]; clipx ls recipes lists them")
    known_arms = [arm for name in options.recipe for arm in recipe(name).arms]
    for arm in options.arms:
        one_of(arm, known_arms, f"recipe={','.join(options.recipe)}: arms")
    if options.device and not options.dry:
        raise UserError(f"device={options.device} needs dry=true; runs take train.device=")
    if options.share and not options.dry:
        raise UserError(f"share={options.share:g} needs dry=true")
    for name in options.recipe:
        known = recipe(name).scale
        if options.scale and not known:
            example = "add one to the recipe, for example scale: {samples: [20000, 80000, 320000, 1280000]}"
            raise UserError(f"scale={','.join(options.scale)}: recipe={name} has no ladder; {example}")
        for axis in options.scale:
            one_of(axis, known, f"recipe={name}: scale")


def _looks(given: list[int], runs: Path, name: str) -> Looks:
    """Return the looks of a recipe: looks= if given, else those of the stored design, of the recipe, or the default.

    The error rates of runs whose seeds came before a design, or before error rates were stored, stay equal.
    """
    looks = check_looks(tuple(given)) if given else ()
    if (design := stored(runs, name)) and looks in ((), design.looks):
        return design.judged_at
    found = sorted(path for folder in (name, f"{name}-*") for path in runs.glob(f"{folder}/s[0-9]*"))
    chosen = looks or recipe(name).looks
    if design is None and found and (not chosen or looks == LOOKS_WITHOUT_DESIGN):
        return equal_errors(LOOKS_WITHOUT_DESIGN)
    if design is None and found and looks:
        text = ",".join(map(str, looks))
        raise UserError(
            f"looks={text} must be chosen before the first seed, but {found[0]} exists: use another runs=DIR"
        )
    return spent_errors(check_looks(chosen or LOOKS))


def _seeds(name: str, options: Options, looks: Looks) -> int:
    """Return the seeds of each arm: seeds=, else the recipe's or the first look's.

    Raises UserError: a replication would have more than 8 seeds, or a verdict more than 100.
    """
    if first := options.first_seed:
        seeds, most, purpose = options.seeds or len(REPLICATION), len(REPLICATION), "a replication has"
    else:
        seeds = options.seeds or max(recipe(name).seeds, min(looks) if claims_of(name) else 1)
        most, purpose = REPLICATION.start, "verdicts have at most"
    if seeds > most and (first or claims_of(name)):
        raise UserError(f"seeds={seeds}: {purpose} {most} seeds, {first} to {first + most - 1}")
    return seeds


def _runs_of_recipe(name: str, chosen: list[str], seeds: range, of_all: list[str], point: list[str]) -> list[list[str]]:
    """Return the overrides of each run of a recipe at a point of a ladder ([]: the recipe's own scale)."""
    settings = [*of_all, *point]
    found = recipe(name)
    arms = [arm for arm in dict.fromkeys(chosen or found.arms) if arm in found.arms]
    for arm in arms:
        for override in found.arms.get(arm, []):
            key = key_of(override)
            if any(key_of(s) == key for s in settings):
                raise UserError(
                    f"{key}= cannot be set for all runs, because arm={arm} of recipe={name} sets it; for one run: "
                    f"clipx train recipe={name} arm={arm} {key}=..."
                )
    by_arm = [[f"arm={arm}"] for arm in arms] or [[]]
    return [[f"recipe={name}", *arm, f"seed={seed}", *settings] for seed in seeds for arm in by_arm]
