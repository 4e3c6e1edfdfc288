"""Evidence for the claims: runs grouped by recipe, arm and seed, and the outcomes that follow from them."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from clipx.errors import UserError
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import ANY, Claim, Comparison, Finding, Outcome, Verdict
from evaluation.claims.verdict import FEWEST_SEEDS, judge, overall
from evaluation.runs.reader import STATED, Run

Seeds = dict[int, Run]
Readings = list[list[dict[str, float]]]  # of one seed: [arm][measure] -> values by name (data set)
VERDICTS = get_args(Verdict)
RECIPES = {recipe for claim in CLAIMS for recipe in claim.recipes}
HISTOGRAM = "missing_objects.json"  # written by `clipx report missing-objects`


@dataclass(frozen=True)
class Evidence:
    """The basis of all verdicts."""

    runs: dict[str, dict[str, Seeds]]  # recipe -> arm -> seed -> run
    stated: dict[str, list[Finding]]  # claim id -> findings that programs wrote to claims.json
    left_out: list[str]  # messages about runs that were not used
    missing_objects: list[int] | None = None  # [k]: pairs with k missing object kinds (paper 1, figure 4)
    drawn: list[Path] = field(default_factory=list)  # SVG files next to a claims.json


def collect_evidence(runs: list[Run], paths: list[Path]) -> Evidence:
    """Group runs by recipe, arm and seed, and read every claims.json at or below `paths`.

    Raises UserError: a claims.json is corrupt.
    """
    experiments: dict[str, dict[str, list[Run]]] = {}  # recipe -> overrides in the run's name -> runs
    for run in runs:
        experiments.setdefault(_setting(run, "recipe"), {}).setdefault(_overrides(run), []).append(run)
    found: dict[str, dict[str, Seeds]] = {}
    left_out = []
    for recipe, by_overrides in experiments.items():
        # Runs with overrides do not follow the recipe. They count only if all its runs have the same overrides.
        chosen = "" if "" in by_overrides or len(by_overrides) > 1 else next(iter(by_overrides))
        for overrides, same in by_overrides.items():
            for run in same if overrides == chosen else ():
                seeds = found.setdefault(recipe, {}).setdefault(_setting(run, "arm"), {})
                if seeds.setdefault(run.seed, run) is not run and recipe in RECIPES:
                    left_out.append(f"left out, the same run as {seeds[run.seed].path}: {run.path}")
            if overrides != chosen and recipe in RECIPES:
                names = [str(run.path) for run in same]
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                left_out.append(f"left out, recipe={recipe} with other settings: {', '.join(names[:3])}{more}")
    drawn = [svg for file in _files(paths, STATED) for svg in sorted(file.parent.glob("*.svg"))]
    return Evidence(found, _stated(paths), left_out, _missing_objects(paths), drawn)


def _setting(run: Run, key: str) -> str:
    return str(run.config.get(key) or "")


def _overrides(run: Run) -> str:
    """Return the part of the run's name after RECIPE-ARM, or the whole name if the user chose it."""
    return run.name.removeprefix("-".join(filter(None, (_setting(run, "recipe"), _setting(run, "arm")))))


def _files(paths: list[Path], name: str) -> list[Path]:
    return sorted({file.resolve() for path in paths for file in path.rglob(name)})


def _missing_objects(paths: list[Path]) -> list[int] | None:
    for file in _files(paths, HISTOGRAM):
        with _damage_as_user_error(file):
            return [int(count) for count in json.loads(file.read_text())["histogram"]]
    return None


def _stated(paths: list[Path]) -> dict[str, list[Finding]]:
    """Read [{claim, statement, measured, expected, verdict}, ...]; measured and expected are numbers or texts.

    Entries that were computed with the user's own settings are skipped: they do not test the paper's claim.
    """
    stated: dict[str, list[Finding]] = {}
    for file in _files(paths, STATED):
        with _damage_as_user_error(file):
            for entry in json.loads(file.read_text()):
                if not entry.get("settings"):
                    stated.setdefault(str(entry["claim"]), []).append(_stated_finding(entry))
    return stated


@contextmanager
def _damage_as_user_error(file: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is corrupt ({error!r}): delete it and run its command again") from error


def _stated_finding(entry: dict[str, Any]) -> Finding:
    verdict, measured, expected = entry["verdict"], entry["measured"], entry["expected"]
    if verdict not in VERDICTS:
        raise ValueError(f"verdict {verdict!r} is not one of {', '.join(VERDICTS)}")
    note = f"measured {_short(measured)}, expected {_short(expected)}"
    if isinstance(measured, dict) and isinstance(expected, dict):
        note = "; ".join(f"{name}: {_short(value)}, expected {expected.get(name)}" for name, value in measured.items())
    return Finding(str(entry["statement"]), verdict, note=note)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def outcomes(claims: tuple[Claim, ...], evidence: Evidence) -> list[Outcome]:
    """Return one outcome for each claim and recipe that was run; a claim without runs has one outcome, `not run`."""
    found = []
    for claim in claims:
        if claim.program:
            not_run = [Finding(claim.statement, "not run", note=f"run: {claim.program}")]
            findings = evidence.stated.get(claim.id) or not_run
            found.append(Outcome(claim, claim.program, overall([f.verdict for f in findings]), findings))
            continue
        by_recipe = [assess(claim, recipe, evidence) for recipe in claim.recipes]
        run = [outcome for outcome in by_recipe if outcome.verdict != "not run"]
        found += run or by_recipe[-1:]  # suggest the last recipe, because it is the smallest
    return found


def assess(claim: Claim, recipe: str, evidence: Evidence) -> Outcome:
    """Return the outcome of the claim from the runs of one recipe."""
    arms = evidence.runs.get(recipe, {})
    applicable = [comparison for comparison in claim.comparisons if comparison.only_recipe in ("", recipe)]
    findings = [_assess_comparison(comparison, recipe, arms) for comparison in applicable]
    return Outcome(claim, recipe, overall([f.verdict for f in findings]), findings)


def _assess_comparison(comparison: Comparison, recipe: str, arms: dict[str, Seeds]) -> Finding:
    if comparison.arms == (ANY,):
        all_runs = {seed: run for seeds in arms.values() for seed, run in seeds.items()}
        arms = {ANY: all_runs} if all_runs else {}
    available = {arm: arms[arm] for arm in comparison.arms if arm in arms}
    missing = [arm for arm in comparison.arms if arm not in arms]
    if len(available) < (comparison.min_arms or len(comparison.arms)):
        arm = "" if missing == [ANY] else f" arm={missing[0]}"
        return judge(comparison, [], f"run: clipx train recipe={recipe}{arm} seed=0")
    diverged = _diverged(available)
    note = "; ".join(f"{arm} diverged in {n} of {len(available[arm])} seeds" for arm, n in diverged.items())
    if len(seeds := _seeds_of_expected_divergence(comparison, available, diverged)) >= FEWEST_SEEDS:
        return Finding(comparison.label, "holds", len(seeds), least=comparison.least, note=note)
    readings = _readings(comparison, list(available.values()))
    effects = [comparison.effect(values) for values in _means(readings)]
    finite = [effect for effect in effects if math.isfinite(effect)]
    if not finite:
        return judge(comparison, [], _missing_numbers(comparison, recipe, available, note))
    fewer = f"{len(available)} of {len(comparison.arms)} arms" if missing else ""
    return judge(comparison, finite, "; ".join(filter(None, (fewer, note))), len(available))


def _diverged(arms: dict[str, Seeds]) -> dict[str, int]:
    """Return arm -> number of diverged seeds, for arms with at least one."""
    counts = {arm: sum(run.diverged for run in seeds.values()) for arm, seeds in arms.items()}
    return {arm: count for arm, count in counts.items() if count}


def _seeds_of_expected_divergence(
    comparison: Comparison, arms: dict[str, Seeds], diverged: dict[str, int]
) -> list[int]:
    """Return seeds with numbers of all other arms; [] unless `diverging_arm` always diverged and the others never."""
    loser = comparison.diverging_arm
    if not loser or diverged != {loser: len(arms[loser])}:
        return []
    others = [seeds for arm, seeds in arms.items() if arm != loser]
    return [s for s in arms[loser] if all(s in seeds and _has_numbers(comparison, seeds[s]) for seeds in others)]


def _has_numbers(comparison: Comparison, run: Run) -> bool:
    return all(measure.read(run) for measure in comparison.measures)


def _missing_numbers(comparison: Comparison, recipe: str, arms: dict[str, Seeds], diverged: str) -> str:
    """Explain why no seed has an effect: a run has no numbers, or the arms share no seed."""
    runs = [run for seeds in arms.values() for run in seeds.values()]
    all_seeds = sorted({seed for seeds in arms.values() for seed in seeds})
    if lacking := [run for run in runs if not _has_numbers(comparison, run)]:
        hint = diverged if lacking[0].diverged else f"clipx eval checkpoint={lacking[0].path}"
    elif untrained := [(arm, seed) for seed in all_seeds for arm in arms if seed not in arms[arm]]:
        hint = f"clipx train recipe={recipe} arm={untrained[0][0]} seed={untrained[0][1]}"
    else:
        return "no seed gives a number; evaluate all arms on the same data sets"
    return f"no seed has the numbers of all arms; {hint}"


def _readings(comparison: Comparison, arms: list[Seeds]) -> list[Readings]:
    """Read the measures for each seed that all arms share; skip seeds in which a number is missing."""
    common = sorted(set.intersection(*(set(seeds) for seeds in arms)))
    readings = [[[measure.read(seeds[s]) for measure in comparison.measures] for seeds in arms] for s in common]
    return [of_seed for of_seed in readings if all(all(of_arm) for of_arm in of_seed)]


def _means(readings: list[Readings]) -> list[list[tuple[float, ...]]]:
    """Average each measure over the names (data sets) that every arm has in every seed; NaN if there are none."""
    if not readings:
        return []
    measures = range(len(readings[0][0]))
    names = [set.intersection(*(set(of_arm[m]) for of_seed in readings for of_arm in of_seed)) for m in measures]

    def mean(values: dict[str, float], m: int) -> float:
        return fmean(values[name] for name in names[m]) if names[m] else math.nan

    return [[tuple(mean(of_arm[m], m) for m in measures) for of_arm in of_seed] for of_seed in readings]
