"""From run directories to the findings on a claim: runs by recipe, arm and seed, compared seed by seed."""

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clipx.errors import UserError
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import ANY, Claim, Comparison, Finding, Outcome, Verdict
from evaluation.claims.verdict import FEWEST_SEEDS, judge, overall
from evaluation.runs.reader import STATED, Run

Seeds = dict[int, Run]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided", "not run")
RECIPES = {recipe for claim in CLAIMS for recipe in claim.recipes}
HISTOGRAM = "missing_objects.json"  # written by `clipx report missing-objects`


@dataclass(frozen=True)
class Evidence:
    """Everything that verdicts are made from."""

    runs: dict[str, dict[str, Seeds]]  # recipe -> arm -> seed -> run
    stated: dict[str, list[Finding]]  # claim -> what a program found
    left_out: list[str]  # runs that could not be told apart, in words
    missing_objects: list[int] | None = None  # pairs by missing kinds of object (paper 1, figure 4)
    drawn: list[Path] = field(default_factory=list)  # what programs drew beside a claims.json: SVG files


def gather(runs: list[Run], paths: list[Path]) -> Evidence:
    """Runs by config.yaml's recipe, arm and seed, and every claims.json at or below `paths`.

    Raises:
        UserError: a claims.json is damaged.
    """
    experiments: dict[str, dict[str, list[Run]]] = {}  # recipe -> what was overridden in all its runs -> runs
    for run in runs:
        experiments.setdefault(_recipe(run), {}).setdefault(_overridden(run), []).append(run)
    found: dict[str, dict[str, Seeds]] = {}
    left_out = []
    for recipe, by_settings in experiments.items():
        # runs with further overrides are not what the recipe says, and comparable among themselves only
        chosen = "" if "" in by_settings or len(by_settings) > 1 else next(iter(by_settings))
        for settings, same in by_settings.items():
            for run in same if settings == chosen else ():
                seeds = found.setdefault(recipe, {}).setdefault(str(run.config.get("arm") or ""), {})
                if seeds.setdefault(run.seed, run) is not run and recipe in RECIPES:
                    left_out.append(f"left out, the same run as {seeds[run.seed].path}: {run.path}")
            if settings != chosen and recipe in RECIPES:
                left_out.append(
                    f"left out, recipe={recipe} with other settings: {_some([str(run.path) for run in same])}"
                )
    drawn = [svg for file in _files(paths, STATED) for svg in sorted(file.parent.glob("*.svg"))]
    return Evidence(found, _stated(paths), left_out, _missing_objects(paths), drawn)


def _recipe(run: Run) -> str:
    return str(run.config.get("recipe") or "")


def _overridden(run: Run) -> str:
    """What the run's name has behind RECIPE-ARM; the whole name where it was given by hand."""
    usual = "-".join(filter(None, (_recipe(run), str(run.config.get("arm") or ""))))
    return run.name.removeprefix(usual)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _files(paths: list[Path], name: str) -> list[Path]:
    found = {(Path(folder) / name).resolve() for path in paths for folder, _, names in os.walk(path) if name in names}
    return sorted(found)


def _stated(paths: list[Path]) -> dict[str, list[Finding]]:
    stated: dict[str, list[Finding]] = {}
    for file in _files(paths, STATED):
        for claim, finding in _read_stated(file):
            stated.setdefault(claim, []).append(finding)
    return stated


def _missing_objects(paths: list[Path]) -> list[int] | None:
    for file in _files(paths, HISTOGRAM):
        try:
            return [int(count) for count in json.loads(file.read_text())["histogram"]]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file} is damaged ({error!r}): delete it and run its command again") from error
    return None


def _read_stated(file: Path) -> list[tuple[str, Finding]]:
    """[{claim, statement, measured, expected, verdict}]; measured and expected are numbers or texts.

    What was computed with settings of the user's own is not what the paper claims, and left out.
    """
    try:
        entries = [entry for entry in json.loads(file.read_text()) if not entry.get("settings")]
        return [(str(entry["claim"]), _stated_finding(entry)) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged ({error!r}): delete it and run its command again") from error


def _stated_finding(entry: dict[str, Any]) -> Finding:
    verdict = next((known for known in VERDICTS if known == entry["verdict"]), None)
    if verdict is None:
        raise ValueError(f"verdict {entry['verdict']!r} is not one of {', '.join(VERDICTS)}")
    return Finding(str(entry["statement"]), verdict, note=_measured(entry["measured"], entry["expected"]))


def _measured(measured: Any, expected: Any) -> str:
    """Of one number or text, or of several by name."""
    if isinstance(measured, dict) and isinstance(expected, dict):
        return "; ".join(f"{name}: {_short(value)}, expected {expected.get(name)}" for name, value in measured.items())
    return f"measured {_short(measured)}, expected {_short(expected)}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def outcomes(claims: tuple[Claim, ...], evidence: Evidence) -> list[Outcome]:
    """Every claim at every scale; a claim that was run at none has one outcome, `not run`."""
    found = []
    for claim in claims:
        if claim.program:
            found.append(_stated_outcome(claim, evidence))
            continue
        of_recipes = [assess(claim, recipe, evidence) for recipe in claim.recipes]
        run = [outcome for outcome in of_recipes if outcome.verdict != "not run"]
        found += run or of_recipes[-1:]  # the last recipe is the small one: what to start with
    return found


def _stated_outcome(claim: Claim, evidence: Evidence) -> Outcome:
    findings = evidence.stated.get(claim.id) or [Finding(claim.statement, "not run", note=f"run: {claim.program}")]
    return Outcome(claim, claim.program, overall([f.verdict for f in findings]), findings)


def assess(claim: Claim, recipe: str, evidence: Evidence) -> Outcome:
    """The claim at one scale."""
    arms = evidence.runs.get(recipe, {})
    findings = [_assess_part(part, recipe, arms) for part in claim.parts if part.only in ("", recipe)]
    return Outcome(claim, recipe, overall([f.verdict for f in findings]), findings)


def _assess_part(part: Comparison, recipe: str, arms: dict[str, Seeds]) -> Finding:
    if part.arms == (ANY,):
        of_any = {seed: run for of_arm in arms.values() for seed, run in of_arm.items()}
        arms = {ANY: of_any} if of_any else {}
    there = [arm for arm in part.arms if arm in arms]
    if len(there) < (part.fewest or len(part.arms)):
        missing = [arm for arm in part.arms if arm not in arms]
        arm = "" if missing == [ANY] else f" arm={missing[0]}"
        return judge(part, [], f"run: clipx train recipe={recipe}{arm} seed=0")
    lost = _diverged(arms, there)
    if part.fatal and len(seeds := _fatal_seeds(part, arms, lost)) >= FEWEST_SEEDS:
        return Finding(part.label, "holds", len(seeds), least=part.least, note=_in_words(lost, arms))
    pieces = _pieces(part, [arms[arm] for arm in there])
    complete = [seed for seed, of_arms in pieces.items() if all(all(of_arm) for of_arm in of_arms)]
    effects = [part.effect(_means(pieces, seed, complete)) for seed in complete]
    known = [effect for effect in effects if math.isfinite(effect)]
    if not known:
        return judge(part, [], _what_is_missing(part, recipe, {arm: arms[arm] for arm in there}, lost))
    fewer = "" if len(there) == len(part.arms) else f"{len(there)} of {len(part.arms)} arms"
    return judge(part, known, "; ".join(filter(None, (fewer, _in_words(lost, arms)))), len(there))


def _diverged(arms: dict[str, Seeds], names: list[str]) -> dict[str, int]:
    """Arm -> its seeds that diverged, of arms with such."""
    counts = {arm: sum(run.diverged for run in arms[arm].values()) for arm in names}
    return {arm: count for arm, count in counts.items() if count}


def _fatal_seeds(part: Comparison, arms: dict[str, Seeds], lost: dict[str, int]) -> list[int]:
    """Where `part.fatal` diverged and the other arms have their numbers; none unless it alone did, in all its seeds."""
    if lost != {part.fatal: len(arms[part.fatal])}:
        return []
    others = [arms[arm] for arm in part.arms if arm != part.fatal]
    return [seed for seed in arms[part.fatal] if all(seed in of and _has(part, of[seed]) for of in others)]


def _has(part: Comparison, run: Run) -> bool:
    return all(measure.read(run) for measure in part.measures)


def _in_words(lost: dict[str, int], arms: dict[str, Seeds]) -> str:
    return "; ".join(f"{arm} diverged in {count} of {len(arms[arm])} seeds" for arm, count in lost.items())


def _what_is_missing(part: Comparison, recipe: str, arms: dict[str, Seeds], lost: dict[str, int]) -> str:
    """What to type where no seed has an effect: a run has no numbers, or the arms have no seed in common."""
    runs = [run for of_arm in arms.values() for run in of_arm.values()]
    seeds = sorted({seed for of_arm in arms.values() for seed in of_arm})
    if lacking := [run for run in runs if not _has(part, run)]:
        hint = _in_words(lost, arms) if lacking[0].diverged else f"clipx eval checkpoint={lacking[0].path}"
    elif untrained := [(arm, seed) for seed in seeds for arm in arms if seed not in arms[arm]]:
        hint = f"clipx train recipe={recipe} arm={untrained[0][0]} seed={untrained[0][1]}"
    else:
        return "no seed gives a number; evaluate all arms on the same data sets"
    return f"no seed has the numbers of all arms; {hint}"


def _pieces(part: Comparison, arms: list[Seeds]) -> dict[int, list[list[dict[str, float]]]]:
    """Seed -> for each arm, for each measure, its pieces; seeds that all arms have."""
    common = sorted(set.intersection(*(set(of_arm) for of_arm in arms)))
    return {seed: [[m.read(of_arm[seed]) for m in part.measures] for of_arm in arms] for seed in common}


def _means(pieces: dict[int, list[list[dict[str, float]]]], seed: int, complete: list[int]) -> list[tuple[float, ...]]:
    """Each arm's measures in one seed, averaged over the data sets that every arm has in every complete seed."""
    count = len(pieces[seed][0])
    common = [set.intersection(*(set(of_arm[at]) for s in complete for of_arm in pieces[s])) for at in range(count)]
    return [tuple(_mean_of(of_arm[at], common[at]) for at in range(count)) for of_arm in pieces[seed]]


def _mean_of(values: dict[str, float], keys: set[str]) -> float:
    return math.fsum(values[key] for key in keys) / len(keys) if keys else math.nan
