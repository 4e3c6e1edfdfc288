"""What `clipx reproduce` is to run: its arguments as overrides of `clipx train`, one list a run, and their configs."""

from dataclasses import dataclass, replace
from pathlib import Path

from cli.settings.arguments import count, flag, number
from cli.settings.compose import compose_run, recipe
from clipx.config.presets import DATA
from clipx.config.schema import RunConfig
from clipx.errors import UserError

COSTS = {"chip": "H100", "share": "0.35"}  # what dry=true reckons with; about what well-fed CLIP training reaches


@dataclass(frozen=True)
class Plan:
    """What to run."""

    overrides: list[list[str]]  # of `clipx train`, one list a run; seed by seed, so that early results compare arms
    jobs: int  # runs at the same time
    dry: bool  # say what would be run and stop
    chip: str  # that costs are estimated for
    share: float  # of its peak that training reaches
    out: Path  # of the report
    stated: list[Path]  # folders beside the runs in which programs may have left a claims.json


def make_plan(arguments: list[str]) -> Plan:
    """Arguments as in `clipx reproduce --help`; those that are not its own are settings for every run.

    Raises:
        UserError: a wrong argument.
    """
    own = {"recipe": "", "arms": "", "seeds": "", "jobs": "1", "dry": "false", "out": "", **COSTS}
    roots: dict[str, str] = {}
    settings = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in own:
            own[key] = value.strip("[]")
        elif equals and key in DATA:
            roots[key] = value
        elif key in ("arm", "seed"):
            meant = f"arms={value} (names, separated by commas)" if key == "arm" else "seeds=3 (how many)"
            raise UserError(f"{argument} is for clipx train; here write {meant}")
        else:
            settings.append(argument)
    if not own["recipe"]:
        raise UserError("recipe= is missing: clipx reproduce recipe=NAME[,NAME]; clipx ls recipes lists them")
    dry, names = flag(own["dry"], "dry"), own["recipe"].split(",")
    of_data = _data_roots(names, roots)
    overrides = [
        one
        for name in names
        for one in _of_recipe(name, own["arms"], own["seeds"], [*of_data.get(name, []), *settings])
    ]
    folder = next((s.removeprefix("runs=") for s in settings if s.startswith("runs=")), "runs")
    return Plan(
        overrides=overrides,
        jobs=count(own["jobs"], "jobs"),
        dry=dry,
        chip=own["chip"],
        share=number(own["share"], "share", 0.01, 1),
        out=Path(own["out"] or f"{folder}/{'+'.join(names)}-report"),
        stated=[Path(folder) / "theory", Path(folder) / "missing_objects"],
    )


def composed(overrides: list[list[str]]) -> list[RunConfig]:
    """The config of each run; seeds differ in nothing else, and to compose takes long."""
    known: dict[tuple[str, ...], RunConfig] = {}
    configs = []
    for one in overrides:
        (seed,) = (o for o in one if o.startswith("seed="))
        others = tuple(o for o in one if o is not seed)
        if others not in known:
            known[others] = compose_run(one)
        configs.append(replace(known[others], seed=int(seed.removeprefix("seed="))))
    return configs


def _data_roots(names: list[str], roots: dict[str, str]) -> dict[str, list[str]]:
    """Recipe -> the data.root= of its data, where `cc3m=DIR` says it."""
    if not roots:
        return {}
    data = {name: compose_run([f"recipe={name}"]).data.name for name in names}
    for key in roots:
        if key not in data.values():
            raise UserError(f"{key}={roots[key]}: no recipe here is on {key}; their data: {', '.join(data.values())}")
    return {name: [f"data.root={roots[of]}"] for name, of in data.items() if of in roots}


def _of_recipe(name: str, chosen: str, seeds: str, settings: list[str]) -> list[list[str]]:
    found = recipe(name)
    arms = chosen.split(",") if chosen else list(found.arms)
    for arm in arms:
        for override in found.arms.get(arm, []):
            key = override.partition("=")[0].lstrip("+~")
            if any(s.partition("=")[0].lstrip("+~") == key for s in settings):
                raise UserError(
                    f"{key}= cannot be set for all runs, as arm={arm} of recipe={name} sets it; for one run: "
                    f"clipx train recipe={name} arm={arm} {key}=..."
                )
    by_arm = [[f"arm={arm}"] for arm in arms] or [[]]
    numbers = range(count(seeds, "seeds") if seeds else found.seeds)
    return [[f"recipe={name}", *arm, f"seed={seed}", *settings] for seed in numbers for arm in by_arm]
