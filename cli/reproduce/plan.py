"""The runs of `clipx reproduce`, and the design of each recipe, stored in the folder of the runs before the first seed.

A design has the looks of its recipe: the numbers of seeds at which the claims are judged.
"""

import shlex
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from cli.settings.arguments import count, flag, key_of, number, split_given
from cli.settings.compose import compose_run, text_of
from cli.settings.recipes import recipe
from clipx.config.presets import DATA
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.run.folder import RunFolder, earlier_runs, identity_keys
from clipx.training.devices import DEVICES
from clipx.utils.registry import one_of
from evaluation.claims.design import LOOKS, Design, check_looks, describe_claims, hash_of, stored
from evaluation.claims.table import claims_of
from evaluation.claims.types import Claim

# argument -> default
OPTIONS = {"recipe": "", "arms": "", "seeds": "", "scale": "", "jobs": "1", "dry": "false", "out": ""}
UNTIL = {"until": "", "max_seeds": "", "hours": "", "looks": ""}
OF_A_RUN = ("name", "arm", "seed")  # settings that are no part of a design
COSTS = {"device": "H100", "share": "0.35"}  # of the estimate, see clipx.training.forecast


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
class Until:
    """The parsed arguments of until=decided."""

    max_seeds: int | None
    hours: float | None  # wall-clock time of this call

    def looks(self, claim: Claim, looks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the looks of a claim: its own looks, or the `looks` of its recipe up to max_seeds."""
        return claim.looks or tuple(look for look in looks if self.max_seeds is None or look <= self.max_seeds)


@dataclass(frozen=True)
class Plan:
    """The parsed arguments of `clipx reproduce`."""

    command: str  # the command line, shown in the report
    overrides: list[list[str]]  # of `clipx train`, for each run; seed by seed, so that early results compare arms
    jobs: int  # runs at the same time
    dry: bool  # only list the runs
    device: str  # for the cost estimate
    share: float  # fraction of the device's peak FLOP/s that a step reaches
    out: Path  # folder of the report
    claims_folders: list[Path]  # folders in which other commands write a claims.json
    runs: Path  # folder of the runs
    settings: list[str]  # of all runs
    looks: dict[str, tuple[int, ...]]  # recipe -> numbers of seeds at which its claims are judged
    until: Until | None  # None: a fixed number of seeds
    scale: list[str]  # axes of the ladders; []: every run once, as the recipe says


def make_plan(arguments: list[str]) -> Plan:
    """Parse the arguments of `clipx reproduce`; all other arguments are settings of every run.

    Raises UserError: an invalid argument.
    """
    given, others = split_given(arguments, OPTIONS | COSTS | UNTIL)
    roots, settings = split_given(others, DATA)
    options = OPTIONS | COSTS | UNTIL | {key: value.strip("[]") for key, value in given.items()}
    for key in given:
        if not options[key]:
            raise UserError(f"{key}= has no value")
    for setting in settings:
        key, _, value = setting.partition("=")
        if key in ("arm", "seed"):
            correct = f"arms={value} (names, separated by commas)" if key == "arm" else "seeds=3 (their number)"
            raise UserError(f"{setting} is for clipx train; here write {correct}")
    if not options["recipe"]:
        raise UserError("recipe= is missing: clipx reproduce recipe=NAME[,NAME]; clipx ls recipes lists them")
    dry, names = flag(options["dry"], "dry"), options["recipe"].split(",")
    one_of(options["device"], DEVICES, "device")
    share = number(options["share"], "share", 0.01, 1)
    if (cost := next((key for key in COSTS if key in given), "")) and not dry:
        runs_take = "; runs take train.device=" * (cost == "device")
        raise UserError(f"{cost}={given[cost]} needs dry=true{runs_take}")
    data_roots = _data_roots(names, roots, settings)
    folder = next((text_of(s) for s in settings if s.startswith("runs=")), "runs")
    looks = {name: _looks(options["looks"], Path(folder), name) for name in names}
    until = _until(options, looks)
    scale = _axes(options, names)
    overrides = []
    for name in names:
        of_all = [*data_roots.get(name, []), *settings]
        seeds = _most_seeds(name, looks[name], until) if until else _seeds(name, options["seeds"], looks[name])
        points = [point for axis in scale for point in recipe(name).scale[axis]] or [[]]
        overrides += [run for point in points for run in _runs_of_recipe(name, options["arms"], seeds, of_all, point)]
    return Plan(
        command=shlex.join(["clipx", "reproduce", *arguments]),
        overrides=overrides,
        jobs=count(options["jobs"], "jobs"),
        dry=dry,
        device=options["device"],
        share=share,
        out=Path(options["out"] or f"{folder}/{'+'.join(names)}-report"),
        claims_folders=[Path(folder) / name for name in ("theory", "missing_objects", "bench")],
        runs=Path(folder),
        settings=settings,
        looks={} if scale else looks,  # claims are about the recipe's own scale
        until=until,
        scale=scale,
    )


def designs_of(plan: Plan) -> list[Design]:
    """Return the design of each recipe that tests claims.

    A design contains all arms of its recipe, so that arms= may run a part of them. It leaves out settings that
    change no result (paths, devices, workers, saving, logging).
    """
    return [_design(name, looks, plan.settings) for name, looks in plan.looks.items() if claims_of(name)]


def _design(name: str, looks: tuple[int, ...], settings: list[str]) -> Design:
    found, config = recipe(name), compose_run([f"recipe={name}", *settings])
    values = {key: attrgetter(key)(config) for key in identity_keys() if key not in OF_A_RUN}
    hashed = hash_of({"settings": values, "arms": found.arms, "evaluations": found.evaluations})
    return Design(name, hashed, tuple(found.arms), looks, describe_claims(name), tuple(config.data.evaluation))


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


def with_parents(chosen: list[PlannedRun], runs: list[PlannedRun]) -> dict[Path, PlannedRun]:
    """Return folder -> run of `chosen`, and of the `runs` that these start from or learn from, also indirectly."""
    by_folder = {run.folder: run for run in runs}
    found: dict[Path, PlannedRun] = {}
    while new := {run.folder: run for run in chosen if run.folder not in found}:
        found |= new
        chosen = [by_folder[parent] for run in new.values() for parent in run.parents if parent in by_folder]
    return found


def _data_roots(names: list[str], roots: dict[str, str], settings: list[str]) -> dict[str, list[str]]:
    """Return recipe -> its data.root= override, from arguments such as cc3m=DIR."""
    if not roots:
        return {}
    first = {name: [f"arm={arm}" for arm in recipe(name).arms][:1] for name in names}
    data = {name: compose_run([f"recipe={name}", *first[name], *settings]).data.name for name in names}
    for key in roots:
        if key not in data.values():
            raise UserError(f"{key}={roots[key]}: no recipe here uses {key}, only {', '.join(data.values())}")
    return {name: [f"data.root={roots[used]}"] for name, used in data.items() if used in roots}


def _looks(given: str, runs: Path, recipe: str) -> tuple[int, ...]:
    """Return the looks of a recipe: looks= if given, else those of the stored design, else the default."""
    design = stored(runs, recipe)
    if not given:
        return design.looks if design else LOOKS
    looks = check_looks(tuple(count(look, "looks") for look in given.split(",")))
    found = sorted(path for folder in (recipe, f"{recipe}-*") for path in runs.glob(f"{folder}/s[0-9]*"))
    if design is None and looks != LOOKS and found:
        raise UserError(
            f"looks={given} must be chosen before the first seed, but {found[0]} exists: use another runs=DIR"
        )
    return looks


def _until(options: dict[str, str], looks: dict[str, tuple[int, ...]]) -> Until | None:
    if not options["until"]:
        for key in ("max_seeds", "hours"):
            if options[key]:
                raise UserError(f"{key}={options[key]} needs until=decided")
        return None
    one_of(options["until"], ("decided",), "until")
    if options["seeds"]:
        raise UserError(f"seeds={options['seeds']} contradicts until=decided, which adds seeds: use max_seeds=N")
    max_seeds = count(options["max_seeds"], "max_seeds") if options["max_seeds"] else None
    for name, of_recipe in looks.items():
        recipe(name)  # raises if it is unknown
        if not claims_of(name):
            raise UserError(f"until=decided: recipe={name} tests no claim; use seeds=N")
        if max_seeds is not None and max_seeds < of_recipe[0]:
            raise UserError(f"max_seeds={max_seeds} is below the first look, at {of_recipe[0]} seeds")
    return Until(max_seeds, number(options["hours"], "hours", 0.01, 10_000) if options["hours"] else None)


def _axes(options: dict[str, str], names: list[str]) -> list[str]:
    axes = [axis.strip() for axis in options["scale"].split(",") if axis.strip()]
    if axes and options["until"]:
        raise UserError(
            f"scale={options['scale']} contradicts until=decided, which is about claims at the recipe's own scale"
        )
    for name in names if axes else ():
        known = recipe(name).scale
        if not known:
            example = "add one to the recipe, for example scale: {samples: [20000, 80000, 320000, 1280000]}"
            raise UserError(f"scale={options['scale']}: recipe={name} has no ladder; {example}")
        for axis in axes:
            one_of(axis, known, f"recipe={name}: scale")
    return axes


def _most_seeds(name: str, looks: tuple[int, ...], until: Until) -> int:
    return max(until.looks(claim, looks)[-1] for claim in claims_of(name))


def _seeds(name: str, given: str, looks: tuple[int, ...]) -> int:
    """Return the given number of seeds; else that of the recipe or of the first look, whichever is larger."""
    return count(given, "seeds") if given else max(recipe(name).seeds, looks[0] if claims_of(name) else 1)


def _runs_of_recipe(name: str, chosen: str, seeds: int, of_all: list[str], point: list[str]) -> list[list[str]]:
    """Return the overrides of each run of a recipe at a point of a ladder ([]: the recipe's own scale)."""
    settings = [*of_all, *point]
    found = recipe(name)
    arms = list(dict.fromkeys(chosen.split(","))) if chosen else list(found.arms)
    for arm in arms:
        for override in found.arms.get(arm, []):
            key = key_of(override)
            if any(key_of(s) == key for s in settings):
                raise UserError(
                    f"{key}= cannot be set for all runs, because arm={arm} of recipe={name} sets it; for one run: "
                    f"clipx train recipe={name} arm={arm} {key}=..."
                )
    by_arm = [[f"arm={arm}"] for arm in arms] or [[]]
    return [[f"recipe={name}", *arm, f"seed={seed}", *settings] for seed in range(seeds) for arm in by_arm]
