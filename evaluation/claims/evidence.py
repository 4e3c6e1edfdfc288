"""From run directories to the findings on a claim: runs by recipe, arm and seed, compared seed by seed."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clipx.errors import UserError
from evaluation.claims.types import ANY, Claim, Finding, Outcome, Part, Verdict
from evaluation.claims.verdict import judge, overall
from evaluation.runs import Run

Seeds = dict[int, Run]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided", "not run")
STATED = "claims.json"  # written by `clipx theory` and `clipx report missing-objects`


@dataclass(frozen=True)
class Evidence:
    """Everything that verdicts are made from."""

    runs: dict[str, dict[str, Seeds]]  # recipe -> arm -> seed -> run
    stated: dict[str, list[Finding]]  # claim -> what a program found


def gather(runs: list[Run], paths: list[Path]) -> Evidence:
    """Runs by config.yaml's recipe, arm and seed, and every claims.json at or below `paths`.

    Raises:
        UserError: two runs are the same arm and seed of a recipe, or a claims.json is damaged.
    """
    found: dict[str, dict[str, Seeds]] = {}
    for run in runs:
        recipe, arm = str(run.config.get("recipe") or ""), str(run.config.get("arm") or "")
        if not recipe:
            continue
        of_arm = found.setdefault(recipe, {}).setdefault(arm, {})
        of_arm[run.seed] = _one_of(of_arm[run.seed], run, recipe, arm) if run.seed in of_arm else run
    return Evidence(found, _stated(paths))


def _one_of(first: Run, second: Run, recipe: str, arm: str) -> Run:
    """The run as the recipe has it; one that was also overridden has another name, and is not compared."""
    usual = "-".join(filter(None, (recipe, arm)))
    as_it_is = [run for run in (first, second) if run.name == usual]
    if len(as_it_is) != 1:
        problem = f"{first.path} and {second.path} are both recipe={recipe} arm={arm} seed={first.seed}"
        raise UserError(f"{problem}: name one of them only")
    return as_it_is[0]


def _stated(paths: list[Path]) -> dict[str, list[Finding]]:
    files = {
        (Path(folder) / STATED).resolve() for path in paths for folder, _, names in os.walk(path) if STATED in names
    }
    stated: dict[str, list[Finding]] = {}
    for file in sorted(files):
        for claim, finding in _read_stated(file):
            stated.setdefault(claim, []).append(finding)
    return stated


def _read_stated(file: Path) -> list[tuple[str, Finding]]:
    """[{claim, statement, measured, expected, verdict}]; measured and expected are numbers or texts."""
    try:
        return [(str(entry["claim"]), _stated_finding(entry)) for entry in json.loads(file.read_text())]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged ({error!r}): delete it and run its command again") from error


def _stated_finding(entry: dict[str, Any]) -> Finding:
    verdict = next((known for known in VERDICTS if known == entry["verdict"]), None)
    if verdict is None:
        raise ValueError(f"verdict {entry['verdict']!r} is not one of {', '.join(VERDICTS)}")
    note = f"measured {_short(entry['measured'])}, expected {_short(entry['expected'])}"
    return Finding(str(entry["statement"]), verdict, note=note)


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
    findings = [_assess_part(part, recipe, arms) for part in claim.parts]
    return Outcome(claim, recipe, overall([f.verdict for f in findings]), findings)


def _assess_part(part: Part, recipe: str, arms: dict[str, Seeds]) -> Finding:
    if part.arms == (ANY,):
        of_any = {seed: run for of_arm in arms.values() for seed, run in of_arm.items()}
        arms = {ANY: of_any} if of_any else {}
    there = [arm for arm in part.arms if arm in arms]
    if len(there) < (part.fewest or len(part.arms)):
        missing = [arm for arm in part.arms if arm not in arms]
        arm = "" if missing == [ANY] else f" arm={missing[0]}"
        return judge(part, [], f"run: clipx train recipe={recipe}{arm} seed=0")
    pieces = _pieces(part, [arms[arm] for arm in there])
    complete = [seed for seed, of_arms in pieces.items() if all(all(of_arm) for of_arm in of_arms)]
    effects = [part.effect(_means(pieces, seed, complete)) for seed in complete]
    known = [effect for effect in effects if math.isfinite(effect)]
    if not known:
        return judge(
            part, [], f"no seed has the numbers of all arms; clipx eval checkpoint={_lacking(part, arms).path}"
        )
    return judge(part, known, "" if len(there) == len(part.arms) else f"{len(there)} of {len(part.arms)} arms")


def _lacking(part: Part, arms: dict[str, Seeds]) -> Run:
    """The first run without one of the measures, or just the first: seeds that no two arms share."""
    runs = [run for arm in part.arms for run in arms.get(arm, {}).values()]
    return next((run for run in runs if not all(m.read(run) for m in part.measures)), runs[0])


def _pieces(part: Part, arms: list[Seeds]) -> dict[int, list[list[dict[str, float]]]]:
    """Seed -> for each arm, for each measure, its pieces; seeds that all arms have."""
    common = sorted(set.intersection(*(set(of_arm) for of_arm in arms)))
    return {seed: [[m.read(of_arm[seed]) for m in part.measures] for of_arm in arms] for seed in common}


def _means(pieces: dict[int, list[list[dict[str, float]]]], seed: int, complete: list[int]) -> list[tuple[float, ...]]:
    """Each arm's measures in one seed, over the pieces that all arms have in all complete seeds."""
    count = len(pieces[seed][0])
    common = [set.intersection(*(set(of_arm[at]) for s in complete for of_arm in pieces[s])) for at in range(count)]
    return [tuple(_mean_of(of_arm[at], common[at]) for at in range(count)) for of_arm in pieces[seed]]


def _mean_of(values: dict[str, float], keys: set[str]) -> float:
    return math.fsum(values[key] for key in keys) / len(keys) if keys else math.nan
