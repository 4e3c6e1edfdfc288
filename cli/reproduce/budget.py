"""`clipx reproduce budget=HOURS`, `sort=claims`: arms and seeds that decide the most claims per GPU-hour.

A claim needs all its arms, with the seeds of its first look, and the runs whose weights these start from. Trained runs
cost nothing. Claims share runs, so a greedy search chooses them: each step adds the missing runs of the claim that
decides the most claims per GPU-hour. A step decides every claim whose runs are then complete. until=decided adds
further seeds later.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cli.reproduce.plan import PlannedRun
from cli.reproduce.until import arms_of
from clipx.errors import UserError
from evaluation.claims.table import claims_of
from evaluation.claims.types import ANY

Named = tuple[str, str]  # id of a claim, recipe


@dataclass(frozen=True)
class Step:
    """Claims that the same runs decide."""

    claims: list[Named]
    runs: list[PlannedRun]  # runs that the claims need and earlier steps do not contain
    gpu_hours: float


def steps_by_worth(
    runs: list[PlannedRun],
    looks: dict[str, tuple[int, ...]],
    gpu_hours: Callable[[PlannedRun], float],
    budget: float = float("inf"),
) -> list[Step]:
    """Return the steps within a budget of GPU-hours, the most claims per GPU-hour first.

    Args:
        runs: all runs that may be trained.
        looks: recipe -> its looks.
        gpu_hours: returns the cost of a run, 0 if it is trained.
    """
    open_claims, steps = _needs(runs, looks), list[Step]()
    chosen: set[int] = set()  # positions in `runs`
    hours = [gpu_hours(run) for run in runs]
    while open_claims:
        best: tuple[float, float, set[int]] | None = None  # claims per GPU-hour, GPU-hours, positions
        for needed in open_claims.values():
            missing = needed - chosen
            cost = sum(hours[k] for k in missing)
            decided = sum(other <= chosen | missing for other in open_claims.values())
            worth = decided / cost if cost else float("inf")
            if cost <= budget and (best is None or worth > best[0]):
                best = worth, cost, missing
        if best is None:
            break
        _, cost, missing = best
        chosen |= missing
        budget -= cost
        decided_now = [claim for claim, needed in open_claims.items() if needed <= chosen]
        steps.append(Step(decided_now, [runs[k] for k in sorted(missing)], cost))
        for claim in decided_now:
            del open_claims[claim]
    return steps


def _needs(runs: list[PlannedRun], looks: dict[str, tuple[int, ...]]) -> dict[Named, set[int]]:
    """Return claim -> positions of the runs that it needs; leave out claims with an arm that no run has."""
    position: dict[Path, int] = {run.folder: k for k, run in enumerate(runs)}
    found: dict[Named, set[int]] = {}
    for recipe, of_recipe in looks.items():
        planned = {run.config.arm for run in runs if run.config.recipe == recipe}
        for claim in claims_of(recipe):
            arms, seeds = arms_of(claim, recipe), (claim.looks or of_recipe)[0]
            if arms - {ANY} <= planned:
                chosen = planned if ANY in arms else arms
                of_arms = [k for k, run in enumerate(runs) if run.arm[0] == recipe and run.arm[1] in chosen]
                needed = [k for k in of_arms if runs[k].config.seed < seeds]
                parents = {position[parent] for k in needed for parent in runs[k].parents if parent in position}
                found[claim.id, recipe] = {*needed, *parents}
    return found


def print_steps(steps: list[Step], budget: float | None) -> None:
    """Print a line per step and the total."""
    total, count = 0.0, 0
    for step in steps:
        total += step.gpu_hours
        count += len(step.claims)
        seeds: dict[str, int] = {}
        for run in step.runs:
            name = "-".join(filter(None, run.arm))
            seeds[name] = seeds.get(name, 0) + 1
        ids: dict[str, list[str]] = {}
        for claim, recipe in step.claims:
            ids.setdefault(recipe, []).append(claim)
        claims = "; ".join(f"{recipe} {', '.join(names)}" for recipe, names in ids.items())
        print(f"{step.gpu_hours:10,.1f} GPU-h  {total:10,.1f} in all  {count:3} claims  {claims}")
        if seeds:
            print("           " + ", ".join(f"{name} x {number}" for name, number in seeds.items()))
    within = "" if budget is None else f" within budget={budget:g} GPU-hours"
    print(f"{count} claims, {sum(len(step.runs) for step in steps)} runs, {total:,.1f} GPU-hours{within}")


def runs_of(steps: list[Step], budget: float) -> list[PlannedRun]:
    """Return the runs of all steps, in the order of the steps. Raises UserError if there is no step."""
    if not steps:
        raise UserError(
            f"budget={budget:g} GPU-hours decides no claim; dry=true sort=claims prints what each claim needs"
        )
    return [run for step in steps for run in step.runs]
