"""The runs of `clipx reproduce`: overrides of `clipx train` and config of each run."""

from dataclasses import dataclass, replace
from pathlib import Path

from cli.settings.arguments import count, flag, number
from cli.settings.compose import compose_run, recipe
from cli.settings.recipes import key_of
from clipx.config.presets import DATA
from clipx.config.schema import RunConfig
from clipx.errors import UserError

COSTS = {"chip": "H100", "share": "0.35"}  # for dry=true; CLIP reaches about this share of the peak without data stalls


@dataclass(frozen=True)
class Plan:
    """The parsed arguments of `clipx reproduce`."""

    overrides: list[list[str]]  # of `clipx train` by run; all arms of a seed first, so that early results compare arms
    jobs: int  # runs at the same time
    dry: bool  # only list the runs
    chip: str  # for the cost estimate
    share: float  # fraction of the chip's peak that training reaches
    out: Path  # folder of the report
    claims_folders: list[Path]  # folders in which other commands write a claims.json


def make_plan(arguments: list[str]) -> Plan:
    """Parse the arguments of `clipx reproduce`; unknown ones are passed to every run as settings.

    Raises UserError: an invalid argument.
    """
    options = {"recipe": "", "arms": "", "seeds": "", "jobs": "1", "dry": "false", "out": "", **COSTS}
    roots: dict[str, str] = {}
    settings = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in options:
            options[key] = value.strip("[]")
        elif equals and key in DATA:
            roots[key] = value
        elif key in ("arm", "seed"):
            correct = f"arms={value} (names, separated by commas)" if key == "arm" else "seeds=3 (their number)"
            raise UserError(f"{argument} is for clipx train; here write {correct}")
        else:
            settings.append(argument)
    if not options["recipe"]:
        raise UserError("recipe= is missing: clipx reproduce recipe=NAME[,NAME]; clipx ls recipes lists them")
    dry, names = flag(options["dry"], "dry"), options["recipe"].split(",")
    data_roots = _data_roots(names, roots)
    overrides = []
    for name in names:
        of_all = [*data_roots.get(name, []), *settings]
        overrides += _runs_of_recipe(name, options["arms"], options["seeds"], of_all)
    folder = next((s.removeprefix("runs=") for s in settings if s.startswith("runs=")), "runs")
    return Plan(
        overrides=overrides,
        jobs=count(options["jobs"], "jobs"),
        dry=dry,
        chip=options["chip"],
        share=number(options["share"], "share", 0.01, 1),
        out=Path(options["out"] or f"{folder}/{'+'.join(names)}-report"),
        claims_folders=[Path(folder) / name for name in ("theory", "missing_objects", "bench")],
    )


def composed(overrides: list[list[str]]) -> list[RunConfig]:
    """Return the config of each run. Compose once per arm: this is slow, and only the seed differs within an arm."""
    known: dict[tuple[str, ...], RunConfig] = {}
    configs = []
    for of_run in overrides:
        (seed,) = (o for o in of_run if o.startswith("seed="))
        others = tuple(o for o in of_run if o is not seed)
        if others not in known:
            known[others] = compose_run(of_run)
        configs.append(replace(known[others], seed=int(seed.removeprefix("seed="))))
    return configs


def _data_roots(names: list[str], roots: dict[str, str]) -> dict[str, list[str]]:
    """Return recipe -> its data.root= override, from arguments such as cc3m=DIR."""
    if not roots:
        return {}
    data = {name: compose_run([f"recipe={name}"]).data.name for name in names}
    for key in roots:
        if key not in data.values():
            raise UserError(f"{key}={roots[key]}: no recipe here uses {key}; their data: {', '.join(data.values())}")
    return {name: [f"data.root={roots[used]}"] for name, used in data.items() if used in roots}


def _runs_of_recipe(name: str, chosen: str, seeds: str, settings: list[str]) -> list[list[str]]:
    """Return the overrides of each run of a recipe."""
    found = recipe(name)
    arms = chosen.split(",") if chosen else list(found.arms)
    for arm in arms:
        for override in found.arms.get(arm, []):
            key = key_of(override)
            if any(key_of(s) == key for s in settings):
                raise UserError(
                    f"{key}= cannot be set for all runs, because arm={arm} of recipe={name} sets it; for one run: "
                    f"clipx train recipe={name} arm={arm} {key}=..."
                )
    by_arm = [[f"arm={arm}"] for arm in arms] or [[]]
    numbers = range(count(seeds, "seeds") if seeds else found.seeds)
    return [[f"recipe={name}", *arm, f"seed={seed}", *settings] for seed in numbers for arm in by_arm]
