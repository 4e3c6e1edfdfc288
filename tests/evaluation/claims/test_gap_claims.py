"""Paper 4's claims: the gap during training, by temperature and by method; scores against geometry over arms."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from evaluation.claims.measures import FinalGap, SlowClosure
from evaluation.claims.papers.paper4 import TABLES_2_TO_5
from evaluation.claims.published import TABLES
from evaluation.claims.types import Finding
from evaluation.runs.reader import Run
from tests.helpers.claim_runs import geometry, only, outcome, recall, seeds, zeroshot
from tests.helpers.synthetic import Values, claim, result, run


def gap_log(gap: Callable[[int], float], every: int = 50, last: int = 5000) -> list[dict[str, Any]]:
    return [{"step": step, "geometry": {"gap": gap(step)}} for step in range(0, last, every)]


def dynamics(recipe: str, learned: Callable[[int], float], fixed: float = 0.1) -> list[Run]:
    def log(arm: str, seed: int) -> list[dict[str, Any]]:
        noise = 1e-4 * seed  # three equal seeds give no verdict
        return gap_log(lambda step: learned(step) + noise * math.sin(2 * step) if arm == "learned" else fixed)

    return [run(recipe, arm, seed, {}, log(arm, seed)) for arm in ("learned", "tau_07") for seed in range(3)]


def slow(step: int) -> float:
    return 0.2 + (1 / math.log(step) ** 2 if step else 0)


def test_the_learned_temperature_must_end_with_the_larger_gap() -> None:
    found = outcome("4.1", "gap_dynamics_mini", dynamics("gap_dynamics_mini", slow))
    assert found.verdict == "holds" and only(found).label == "learned − tau_07, final gap"
    closed = outcome("4.1", "gap_dynamics_mini", dynamics("gap_dynamics_mini", slow, fixed=0.3))
    assert closed.verdict == "does not hold"


def test_at_full_scale_the_gap_must_also_be_linear_in_one_over_log_squared() -> None:
    def parts(learned: Callable[[int], float]) -> list[Finding]:
        return outcome("4.1", "gap_dynamics_mscoco", dynamics("gap_dynamics_mscoco", learned)).findings

    assert [f.verdict for f in parts(slow)] == ["holds", "holds"]
    growing = parts(lambda step: 0.4 - slow(step))[1]
    assert growing.verdict == "does not hold" and growing.effect == pytest.approx(-1.0, abs=1e-3)
    assert parts(lambda step: 0.2 + 0.1 * math.sin(step))[1].verdict == "does not hold"


def test_the_final_gap_is_the_mean_of_the_last_tenth_of_the_steps() -> None:
    one = run("r", "a", 0, {}, gap_log(lambda step: step, every=10, last=110))
    assert FinalGap().read(one) == {"final gap": 95.0}  # of steps 90 and 100
    assert FinalGap().read(run("r", "a", 0, {}, gap_log(lambda step: 1.0, last=1))) == {}, "only the initial gap"


def test_a_diverged_run_has_no_final_gap_and_no_slope() -> None:
    one = run("r", "a", 0, {("train", "d", "loss"): math.nan}, gap_log(slow))
    assert FinalGap().read(one) == SlowClosure().read(one) == {}


def test_early_growth_is_judged_by_its_share_and_its_mean() -> None:
    def runs(growing: int) -> list[Run]:
        changes = [0.1 + 0.001 * s if s < growing else -0.1 for s in range(100)]
        return [
            run(
                "gap_init_mini", "", s, {}, [{"step": t, "geometry": {"gap": 0.5 + change * t / 10}} for t in range(11)]
            )
            for s, change in enumerate(changes)
        ]

    always = outcome("4.2", "gap_init_mini", runs(100))
    assert always.verdict == "holds" and [f.effect for f in always.findings] == [1.0, pytest.approx(0.1495)]
    assert outcome("4.2", "gap_init_mini", runs(96)).verdict == "holds", "four of a hundred may shrink"
    assert outcome("4.2", "gap_init_mini", runs(95)).verdict == "undecided"
    assert [f.verdict for f in outcome("4.2", "gap_init_mini", runs(80)).findings] == ["does not hold", "holds"]


ARMS = tuple(arm for family in TABLES_2_TO_5 for arm in family)
UP = [float(at) for at in range(len(ARMS))]
MIXED = [7.0 * at % len(UP) for at in range(len(UP))]  # has a rank correlation of 0.18 with UP


def over_arms(gap: list[float], uniformity: list[float], score: list[float]) -> list[Run]:
    """Return runs of every arm of Tables 2 to 5; R@1, zero-shot, linear probe and pair accuracy equal `score`."""

    def values(at: int) -> Values:
        scores = zeroshot(score[at]) | recall(score[at]) | {("linear_probe", "s", "top1"): score[at]}
        scores |= {("pairs", "s", "pair_accuracy"): score[at]}
        return geometry(gap=gap[at], uniformity=uniformity[at]) | scores

    return seeds("gap_mini", {arm: values(at) for at, arm in enumerate(ARMS)})


@pytest.mark.parametrize("number", ["4.5", "4.6", "4.7", "4.10"])
@pytest.mark.parametrize("gap", [UP, MIXED])
def test_statements_over_arms_are_shown_but_not_judged(number: str, gap: list[float]) -> None:
    """The arms are five families with one knob each: a test that counts 26 arms is wrong in 14% of experiments."""
    found = outcome(number, "gap_mini", over_arms(gap, MIXED, UP))
    assert found.verdict == "undecided"
    for part in found.findings:
        assert "more seeds do not help: the arms are 4 families with one knob each, a test needs 6" in part.note
        assert part.effect is not None and -1 <= part.effect <= 1


def test_the_correlations_over_all_arms_and_within_the_families_are_stated() -> None:
    (part,) = outcome("4.5", "gap_mini", over_arms(UP[::-1], MIXED, UP)).findings
    assert part.effect == pytest.approx(1.0) and "within the families: +1.00, +1.00, +1.00, +1.00" in part.note


def test_statements_over_arms_of_which_every_run_diverged_have_no_numbers() -> None:
    lost = [replace(one, results=[result("train", "d", "loss", math.nan)]) for one in over_arms(UP, MIXED, UP)]
    (part,) = outcome("4.5", "gap_mini", lost).findings
    assert part.verdict == "not run" and "base diverged in 3 of 3 seeds" in part.note


def test_statements_over_arms_use_every_row_of_tables_2_to_5() -> None:
    rows = [set(table.rows) for table in TABLES if table.recipe == "gap_mscoco" and "Tables 2 to 5" in table.source]
    assert rows == [set(ARMS)]
    for number in ("4.5", "4.6", "4.7", "4.10"):
        assert {comparison.arms for comparison in claim(number).comparisons} == {ARMS}
