"""budget= and sort=claims put the runs first that decide the most claims per GPU-hour.

For the four claims here, no other order decides more claims within a budget.
"""

from itertools import permutations
from pathlib import Path

import pytest

from cli.reproduce import budget, cost
from cli.reproduce.budget import BudgetItem, rank_by_claims_per_gpu_hour
from cli.reproduce.plan import PlannedRun, composed, make_plan
from clipx.run import directory
from clipx.training.cost import StepCost
from evaluation.claims.comparisons import more
from evaluation.claims.names import GAP
from evaluation.claims.types import ANY, Claim, Comparison
from tests.helpers.commands import clipx_here

RECIPE = "gap_mini"
HOURS = {"base": 4.0, "slrt": 1.0, "softplus": 2.0, "no_norm": 10.0}  # arm -> GPU-hours of a run
LOOKS: dict[str, tuple[int, ...]] = {RECIPE: (3, 5)}  # numbers of seeds at which a recipe's claims are judged


def claim(number: str, *arms: str, looks: tuple[int, ...] = ()) -> Claim:
    part = more(*arms, GAP, 0.1) if len(arms) == 2 else Comparison("all", arms, (GAP,), lambda values: 0.0, 0.1)
    return Claim(number, number, "", (RECIPE,), (part,), looks=looks)


CLAIMS = [claim("9.1", "base", "slrt"), claim("9.2", "slrt", "softplus"), claim("9.3", "base", "softplus")]
CLAIMS += [claim("9.4", "base", "no_norm", looks=(2,))]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[PlannedRun]:
    monkeypatch.setattr(budget, "claims_of", lambda recipe: CLAIMS)
    words = [f"recipe={RECIPE}", f"arms={','.join(HOURS)}", "seeds=5", f"runs={tmp_path}"]
    overrides = make_plan(words).overrides
    return [PlannedRun(o, c) for o, c in zip(overrides, composed(overrides), strict=True)]


def hours(run: PlannedRun) -> float:
    return HOURS[run.config.arm]


def summary(step: BudgetItem) -> tuple[list[str], list[tuple[str, int]], float]:
    return [number for number, _ in step.claims], [(r.config.arm, r.config.seed) for r in step.runs], step.gpu_hours


def test_claims_are_ordered_by_claims_per_gpu_hour_with_the_seeds_of_their_first_look(runs: list[PlannedRun]) -> None:
    first, second, third = (summary(step) for step in rank_by_claims_per_gpu_hour(runs, LOOKS, hours))
    assert first == (["9.2"], [(arm, seed) for seed in range(3) for arm in ("slrt", "softplus")], 9.0)
    assert second == (["9.1", "9.3"], [("base", seed) for seed in range(3)], 12.0)
    assert third == (["9.4"], [("no_norm", 0), ("no_norm", 1)], 20.0)  # its own look is at 2 seeds


@pytest.mark.parametrize("limit", [8.9, 9, 20, 21, 40, 41, 100])
def test_no_order_of_claims_decides_more_within_the_budget(limit: float, runs: list[PlannedRun]) -> None:
    steps = rank_by_claims_per_gpu_hour(runs, LOOKS, hours, limit)
    assert sum(step.gpu_hours for step in steps) <= limit
    needs = {c.id: {(a, s) for a in c.comparisons[0].arms for s in range(c.looks[0] if c.looks else 3)} for c in CLAIMS}

    def decided(order: tuple[str, ...]) -> int:
        done: set[tuple[str, int]] = set()
        for number in order:
            wanted = done | needs[number]
            done = wanted if sum(HOURS[arm] for arm, _ in wanted) <= limit else done
        return sum(needed <= done for needed in needs.values())

    assert sum(len(step.claims) for step in steps) == max(decided(order) for order in permutations(needs))


def test_trained_runs_cost_nothing_and_a_claim_without_its_arms_or_seeds_is_left_out(
    runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = rank_by_claims_per_gpu_hour(runs, LOOKS, lambda run: 0.0 if run.config.arm != "softplus" else 2.0)
    assert free[0].gpu_hours == 0 and "9.1" in summary(free[0])[0]
    some = [run for run in runs if run.config.arm != "base"]
    assert [summary(step)[0] for step in rank_by_claims_per_gpu_hour(some, LOOKS, hours)] == [["9.2"]]
    two_seeds = [run for run in runs if run.config.seed < 2]  # fewer than the first look of all claims but 9.4
    assert [summary(step)[0] for step in rank_by_claims_per_gpu_hour(two_seeds, LOOKS, hours)] == [["9.4"]]
    monkeypatch.setattr(budget, "claims_of", lambda recipe: [claim("9.5", ANY)])
    (step,) = rank_by_claims_per_gpu_hour(runs, LOOKS, hours)
    assert {run.config.arm for run in step.runs} == set(HOURS)


def test_the_run_that_another_starts_from_is_included(runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "claims_of", lambda recipe: [claim("9.2", "slrt", "softplus")])
    for run in runs:
        if run.config.arm == "slrt":
            run.config.model.init = "arm:base"
    (step,) = rank_by_claims_per_gpu_hour(runs, LOOKS, hours)
    assert {run.config.arm for run in step.runs} == {"slrt", "softplus", "base"}


def test_a_trained_run_has_no_hours_left(runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "single_process_cost", lambda config: StepCost(10**15, 0, 1, 1, 1, {}))
    left = cost.hours_left("H100", 0.5)
    assert left(runs[0]) > 0
    directory.run_directory(runs[0].config).mkdir(parents=True)
    monkeypatch.setattr(cost, "state_of", lambda config: "trained")
    assert left(runs[0]) == 0


def test_a_dry_run_lists_claims_and_costs_within_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "single_process_cost", lambda config: StepCost(10**14, 0, 1, 1, 1, {}))
    command = ["reproduce", "recipe=nuclr_cc3m,gap_init_mscoco", "dry=true"]
    everything = clipx_here(*command, "sort=claims", cwd=tmp_path)
    lines = [line for line in everything.stdout.splitlines() if "GPU-h " in line]
    assert lines[0].endswith("1 claims  gap_init_mscoco 4.2") and len(lines) >= 3
    some = clipx_here(*command, "budget=60", cwd=tmp_path)
    assert "within budget=60 GPU-hours" in some.stdout
    assert 0 < len([line for line in some.stdout.splitlines() if "GPU-h " in line]) < len(lines)
    clipx_here(*command, "budget=0.01", "arms=clip,nuclr", cwd=tmp_path, code=2)
    none = clipx_here("reproduce", "recipe=demo", "dry=true", "sort=claims", cwd=tmp_path, code=2)
    assert "sort=claims: these recipes, arms and seeds can decide no claim" in none.stderr
