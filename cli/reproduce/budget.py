"""`clipx reproduce budget=HOURS`, `sort=claims`: arms and seeds that decide the most claims per GPU-hour.

A claim needs the runs of all its arms, with the seeds of its first look. It also needs the runs that these start from
or learn from.
Trained runs cost nothing. Claims share runs, so the search is greedy: each item adds the missing runs of one claim,
chosen so that the item decides the most claims per GPU-hour. An item decides every claim whose runs are then complete.
until=decided adds further seeds later.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import isinf
from pathlib import Path

from cli.reproduce.plan import PlannedRun, with_parents
from cli.reproduce.until import arms_of
from clipx.errors import UserError
from evaluation.claims.table import claims_of
from evaluation.claims.types import ANY

Named = tuple[str, str]  # id of a claim, recipe


@dataclass(frozen=True)
class BudgetItem:
    """Runs to add, and the claims that they decide."""

    claims: list[Named]
    runs: list[PlannedRun]  # runs that these claims need and no earlier item contains
    gpu_hours: float


def rank_by_claims_per_gpu_hour(
    runs: list[PlannedRun],
    looks: dict[str, tuple[int, ...]],
    gpu_hours: Callable[[PlannedRun], float],
    budget: float = float("inf"),
) -> list[BudgetItem]:
    """Return the items within a budget of GPU-hours, the most claims per GPU-hour first.

    Args:
        runs: all runs that may be trained.
        looks: recipe -> its looks.
        gpu_hours: returns the cost of a run, 0 if it is trained.
    """
    open_claims, items = _needs(runs, looks), list[BudgetItem]()
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
        items.append(BudgetItem(decided_now, [runs[k] for k in sorted(missing)], cost))
        for claim in decided_now:
            del open_claims[claim]
    return items


def _needs(runs: list[PlannedRun], looks: dict[str, tuple[int, ...]]) -> dict[Named, set[int]]:
    """Return claim -> positions of the runs that it needs; leave out claims with an arm that has too few seeds."""
    position: dict[Path, int] = {run.folder: k for k, run in enumerate(runs)}
    found: dict[Named, set[int]] = {}
    for recipe, of_recipe in looks.items():
        planned = {run.config.arm for run in runs if run.config.recipe == recipe}
        for claim in claims_of(recipe):
            arms, seeds = arms_of(claim, recipe), (claim.looks or of_recipe)[0]
            chosen = planned | arms - {ANY} if ANY in arms else arms
            of_arms = [run for run in runs if run.arm[0] == recipe and run.arm[1] in chosen]
            needed = [run for run in of_arms if run.config.seed < seeds]
            count = Counter(run.arm[1] for run in needed)
            if all(count[arm] >= seeds for arm in chosen):
                found[claim.id, recipe] = {position[folder] for folder in with_parents(needed, runs)}
    return found


def print_items(items: list[BudgetItem], budget: float | None) -> None:
    """Print each item of the budget, then the total."""
    total, count = 0.0, 0
    for item in items:
        total += item.gpu_hours
        count += len(item.claims)
        seeds = Counter("-".join(filter(None, run.arm)) for run in item.runs)
        ids: dict[str, list[str]] = {}
        for claim, recipe in item.claims:
            ids.setdefault(recipe, []).append(claim)
        claims = "; ".join(f"{recipe} {', '.join(names)}" for recipe, names in ids.items())
        print(f"{item.gpu_hours:10,.1f} GPU-h  {total:10,.1f} in all  {count:3} claims  {claims}")
        if seeds:
            print("           " + ", ".join(f"{name} x {number}" for name, number in seeds.items()))
    within = "" if budget is None else f" within budget={budget:g} GPU-hours"
    print(f"{count} claims, {sum(len(item.runs) for item in items)} runs, {total:,.1f} GPU-hours{within}")


def runs_of(items: list[BudgetItem], budget: float) -> list[PlannedRun]:
    """Return the runs of all items, in their order. Raises UserError if there is no item."""
    if not items and isinf(budget):
        raise UserError("sort=claims: these recipes, arms and seeds can decide no claim")
    if not items:
        raise UserError(
            f"budget={budget:g} GPU-hours decides no claim; dry=true sort=claims prints what each claim needs"
        )
    return [run for item in items for run in item.runs]
