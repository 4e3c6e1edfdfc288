"""Ladders are found by the settings of the runs, arms are paired by seed, and what is left out is named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clipx.errors import UserError
from evaluation.analyses.comparison import seed_mean
from evaluation.analyses.ladder_runs import refuse_short
from evaluation.analyses.power_law import crossover, fit_power_law
from evaluation.analyses.scaling import Ladder, find_ladders
from evaluation.report.contents import build_report
from evaluation.report.pages.scaling import blocks, build_scaling, crossover_text, scaling_section, scaling_table, title
from evaluation.report.sections.published import Published
from evaluation.runs.reader import Run
from evaluation.runs.results import DIVERGED
from tests.bench.scaling import X
from tests.helpers.ladder_runs import BOTH, FIRST, SECOND, at, runs_of
from tests.helpers.synthetic import evidence


@pytest.fixture(scope="module")
def ladder() -> Ladder:
    (found,), left_out = find_ladders(BOTH)
    assert left_out == []
    return found


def test_runs_that_differ_in_one_axis_are_a_ladder(ladder: Ladder) -> None:
    assert (ladder.recipe, ladder.axis, ladder.against, ladder.score) == ("mine", "samples", "samples", "zeroshot")
    assert ladder.points == [str(int(x)) for x in X]
    assert [arm.arm for arm in ladder.arms] == ["early", "clip"] and ladder.reference == "clip"
    assert ladder.arms[1].x == list(X)
    assert ladder.arms[1].errors[2][5] == pytest.approx(FIRST[5, 2])


def test_gains_are_paired_by_seed(ladder: Ladder) -> None:
    (gain,) = ladder.gains
    for point, found in enumerate(gain.at):
        expected = seed_mean({seed: FIRST[seed, point] - SECOND[seed, point] for seed in range(8)})
        assert expected is not None
        assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
    expected_crossover = crossover(fit_power_law(X, FIRST), fit_power_law(X, SECOND))
    assert gain.crossover is not None and expected_crossover is not None
    assert gain.crossover.value == pytest.approx(expected_crossover.value, rel=1e-3)


def test_the_largest_point_is_predicted_without_it(ladder: Ladder) -> None:
    changed = [one if one.config["train"]["samples"] < X[-1] else at("clip", one.seed, X[-1], 0.01) for one in BOTH]
    (other,), _ = find_ladders([one for one in changed if one.config["arm"] == "clip"])
    before, after = ladder.arms[1].held_out, other.arms[0].held_out
    assert before is not None and after is not None
    assert after.predicted.value == pytest.approx(before.predicted.value)
    assert before.inside and not after.inside


def test_runs_on_other_towers_are_a_ladder_of_their_own() -> None:
    towers = {side: {"name": "open_clip:b"} for side in ("image", "text")}
    others = [at(arm, seed, x, 0.5 + x**-0.5, towers) for arm in ("a", "b") for seed in range(3) for x in X]
    found, _ = find_ladders(BOTH + others)
    assert [[arm.arm for arm in one.arms] for one in found] == [["early", "clip"], ["a", "b"]]
    assert found[1].reference == "a"
    (only,), left_out = find_ladders(BOTH + others, reference="b")
    assert only.reference == "b"
    assert left_out == ["left out, mine along samples: reference=b is not one of its arms: early, clip"]
    names = [figure.name for k, one in enumerate(found, 1) for figure in blocks(one, 0.01, k)[1].figures]  # type: ignore[union-attr]
    assert len({*names}) == 4 and len({title(one) for one in found}) == 2


def test_hours_are_those_of_the_training_steps() -> None:
    (found,), _ = find_ladders(BOTH, against="hours")
    assert found.arms[0].x == pytest.approx([x / 100 / 3600 for x in X])


def test_an_arm_with_few_points_and_a_seed_without_a_pair_are_left_out() -> None:
    runs = BOTH + runs_of("short", [[0.5, 0.4]] * 3, (2500, 10_000))
    (found,), left_out = find_ladders(runs)
    assert [arm.arm for arm in found.arms] == ["early", "clip"]
    assert left_out == ["left out, mine along samples: short has 2 of at least 4 points"]
    (fewer,), _ = find_ladders([one for one in BOTH if (one.config["arm"], one.seed) != ("clip", 7)])
    assert fewer.gains[0].at[0].seeds == 7


def test_a_sweep_over_another_setting_does_not_mix_with_the_ladder(ladder: Ladder) -> None:
    sweep = [
        replace(one, path=Path("runs") / f"{one.name}-optimizer.lr_0.1", config=one.config | {"optimizer": {"lr": 0.1}})
        for one in BOTH[:3]
    ]
    again = replace(BOTH[0], path=Path("other"))
    (found,), left_out = find_ladders([*BOTH, *sweep, again])
    assert [arm.errors for arm in found.arms] == [arm.errors for arm in ladder.arms]
    assert [line.partition(":")[0] for line in left_out] == [
        "left out, other settings",
        "left out, a second run of a seed",
    ]
    assert left_out[1] == "left out, a second run of a seed: other"


def test_a_whole_ladder_with_another_learning_rate_is_left_out_at_all_points(ladder: Ladder) -> None:
    other = [replace(one, name=f"{one.name}-lr", config=one.config | {"optimizer": {"lr": 0.1}}) for one in BOTH]
    (found,), left_out = find_ladders([*other, *BOTH])
    assert [arm.errors for arm in found.arms] == [arm.errors for arm in ladder.arms]
    assert all(line.startswith("left out, other settings: ") for line in left_out)


def test_a_learning_rate_for_each_point_is_one_ladder() -> None:
    rates = {int(x): 1e-3 * float(x) ** 0.5 for x in X}
    runs = [
        replace(one, config=one.config | {"optimizer": {"lr": rates[one.config["train"]["samples"]]}}) for one in BOTH
    ]
    (found,), left_out = find_ladders(runs)
    assert len(found.points) == 6 and left_out == []


def with_rate(one: Run, rate: float) -> Run:
    name = f"{one.name}-optimizer.lr_{rate}"
    config = one.config | {"optimizer": {"lr": rate}}
    return replace(one, name=name, path=Path("runs") / name / f"s{one.seed}", config=config)


def test_rates_chosen_by_a_sweep_with_one_seed_are_one_ladder() -> None:
    """All rates have one seed at each point; the chosen ones, two rates for six points, have eight."""
    chosen = {int(x): 1e-3 if x < 1e5 else 5e-4 for x in X}
    runs = [with_rate(one, chosen[one.config["train"]["samples"]]) for one in BOTH]
    sweep = [with_rate(one, rate) for one in BOTH if one.seed == 0 for rate in (1e-4, 1e-3, 5e-4)]
    (found,), left_out = find_ladders(sweep + runs)
    assert [len(by_seed) for by_seed in found.arms[0].errors] == [8] * 6
    assert {line.partition(":")[0] for line in left_out} == {
        "left out, other settings", "left out, a second run of a seed"
    }  # fmt: skip


def test_real_data_have_no_size() -> None:
    shards = [replace(one, config=one.config | {"data": {**one.config["data"], "source": "shards"}}) for one in BOTH]
    (found,), _ = find_ladders(shards)
    assert title(found).startswith("mine (width open_clip:a, batch 64): samples at 6 points")


def test_diverged_runs_that_leave_too_few_points_are_counted() -> None:
    few = [one for one in BOTH if one.config["train"]["samples"] < 1e5]
    lost = [replace(at("clip", 0, x, 0.5), results=[replace(BOTH[0].results[0], task=DIVERGED)]) for x in X[3:]]
    with pytest.raises(UserError, match=r"has results at 3 of 4 points of samples; .*; 3 diverged runs do not count$"):
        refuse_short(few + lost)


def test_a_recipe_without_arms_is_a_ladder() -> None:
    (found,), _ = find_ladders([replace(one, config=one.config | {"arm": ""}) for one in runs_of("", FIRST.tolist())])
    assert [arm.arm for arm in found.arms] == ["mine"] and found.gains == []


def test_diverged_runs_and_points_that_an_arm_lacks_are_named() -> None:
    def ends(one: Run) -> Run:
        return replace(one, results=[replace(one.results[0], task=DIVERGED)]) if lost(one) else one

    def lost(one: Run) -> bool:
        return bool(one.config["arm"] == "early" and one.config["train"]["samples"] == X[-1])

    (found,), left_out = find_ladders([ends(one) for one in BOTH])
    assert len(found.points) == 5
    assert left_out[0] == f"left out, mine along samples: point {int(X[-1])}, without results of early"
    assert left_out[1].startswith("left out, diverged: ")


def test_a_ladder_that_cannot_be_used_does_not_hide_the_others() -> None:
    towers = {side: {"name": "open_clip:b"} for side in ("image", "text")}
    rising = [at("a", 0, x, 0.5, towers) for x in X]
    unknown = [replace(one, log=[]) for one in rising]
    found, left_out = find_ladders(BOTH + unknown)
    assert [one.reference for one in found] == ["clip"]
    (line,) = left_out
    assert line.startswith("left out, mine along samples: against=samples does not grow for arm a, or is unknown")


def test_two_seeds_give_differences_but_no_law() -> None:
    (found,), _ = find_ladders([one for one in BOTH if one.seed < 2])
    assert found.arms[0].law is None
    assert found.arms[0].problem == "2 seeds at all points, a law needs 3"
    assert found.gains[0].laws is None
    assert crossover_text(found.gains[0]) == "no law of clip"
    assert found.gains[0].at[0].low is None


def test_without_laws_the_points_around_the_last_change_of_sign_are_named() -> None:
    curves = {"clip": (0.5, 0.5, 0.5, 0.5), "late": (0.6, 0.55, 0.4, 0.3)}  # the error of clip does not fall
    draw = np.random.default_rng(0)
    errors = {arm: (np.array(curve) + 1e-3 * draw.standard_normal((4, 4))).tolist() for arm, curve in curves.items()}
    (found,), _ = find_ladders([one for arm in errors for one in runs_of(arm, errors[arm], tuple(X[:4]))])
    assert crossover_text(found.gains[0]) == "between 10,000 and 40,000; no law of clip"


def test_a_point_without_a_seed_that_has_all_tasks_is_refused() -> None:
    def with_pairs(one: Run) -> Run:
        pairs = [replace(row, task="pairs", metric="pair_accuracy") for row in one.results]
        if one.config["train"]["samples"] > X[0]:
            return replace(one, results=[*one.results, *pairs])
        return replace(one, results=one.results if one.seed < 4 else pairs)

    with pytest.raises(UserError, match=rf"clip {int(X[0])}: no seed has results of all of zeroshot, pairs"):
        find_ladders([with_pairs(one) for one in runs_of("clip", FIRST.tolist())])


def test_an_arm_without_a_common_seed_or_with_other_points_does_not_hide_the_others(ladder: Ladder) -> None:
    late = runs_of("late", SECOND.tolist(), first=8)
    beyond = runs_of("beyond", [[0.5, 0.4, 0.3, 0.2]] * 3, (*X[4:], 1e7, 4e7))
    (found,), left_out = find_ladders(BOTH + late + beyond)
    assert found.points == ladder.points and found.gains[0].at == ladder.gains[0].at
    assert [arm.arm for arm in found.arms] == ["early", "clip", "late"]
    assert [gain.arm for gain in found.gains] == ["early"]
    assert left_out == [
        "left out, mine along samples: beyond has fewer than 4 points in common with the other arms",
        "left out, mine along samples: arms clip and late have no common seed at a point of their ladder",
    ]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            {"against": "batch"},
            "mine along samples: against=batch does not grow for arm early, or is unknown: use samples",
        ),
        ({"reference": "siglip"}, "mine along samples: reference=siglip is not one of its arms: early, clip"),
        ({"by": "retrieval"}, "by=retrieval: no task has been evaluated at all points of all arms"),
    ],
)
def test_a_wrong_choice_is_one_line(choice: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        find_ladders(BOTH, **choice)


def test_three_points_are_no_ladder() -> None:
    three = [one for one in BOTH if one.config["train"]["samples"] < 1e5]
    assert find_ladders(three) == ([], [])


def test_the_page_marks_what_the_analysis_found(ladder: Ladder) -> None:
    document = build_scaling([ladder], [], 0.01)
    figures, laws, gains = document.sections[0].blocks[1:]
    assert [one.name for one in figures.figures] == [  # type: ignore[union-attr]
        "scaling-1-error", "scaling-1-early"
    ]  # fmt: skip
    error, gain = figures.figures  # type: ignore[union-attr]
    assert {row[1] for row in error.data.rows} == {"measured", "law", "predicted"}  # type: ignore[union-attr]
    assert "crossover" in gain.body  # type: ignore[union-attr]
    assert [row[-1].text for row in laws.rows] == ["none", "none"]  # type: ignore[union-attr]
    assert gains.rows[0][1].text.startswith("▲") and gains.rows[0][-2].text.startswith("▼")  # type: ignore[union-attr]
    assert document.lead == (
        "At the largest point of samples, 0 of 1 arms are better than clip and 1 worse (95% interval of the gain; not "
        "corrected for the number of arms). For 2 of 2 arms the error at the largest point lies in the interval "
        "predicted from the smaller points."
    )
    assert len(scaling_table([ladder])) == 1 + 2 * 6 * 8


def test_a_report_on_a_ladder_has_the_section_and_others_do_not() -> None:
    document = build_report(BOTH, evidence(BOTH), Published(BOTH, ()))
    assert "Scaling" in [section.title for section in document.sections]
    assert scaling_section(BOTH[:6:6]) == []
