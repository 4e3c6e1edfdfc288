"""Stored designs: written once, compared afterwards, found from any run folder."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from clipx.errors import UserError
from evaluation.claims.design import (
    ERROR,
    Design,
    check_looks,
    describe_claims,
    find_designs,
    spent_errors,
    store,
)

DESIGN = Design("clip_reg_mini", "abc", ("clip", "clip_reg"), (3, 5), describe_claims("clip_reg_mini"))


def test_a_design_is_written_once_and_read_from_a_run_folder(tmp_path: Path) -> None:
    store(tmp_path, DESIGN)
    store(tmp_path, DESIGN)
    run = tmp_path / "clip_reg_mini-clip" / "s0"
    run.mkdir(parents=True)
    for path in (tmp_path, run.parent, run):
        assert find_designs([path]) == {"clip_reg_mini": DESIGN}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(DESIGN, looks=(3, 8)), "looks: 3,5 -> 3,8"),
        (replace(DESIGN, errors=(0.005, 0.02)), "the error rates of the looks differ"),
        (replace(DESIGN, arms=("clip",)), "arms: clip,clip_reg -> clip"),
        (replace(DESIGN, recipe_hash="other"), "the recipe or the overrides changed"),
        (replace(DESIGN, claims={**DESIGN.claims, "1.5": {"part": "new bound"}}), "claim 1.5"),
    ],
)
def test_another_design_in_the_same_folder_is_refused(tmp_path: Path, other: Design, message: str) -> None:
    store(tmp_path, DESIGN)
    with pytest.raises(UserError, match="stores another design") as error:
        store(tmp_path, other)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_folders_with_different_designs_are_refused_in_any_order(tmp_path: Path) -> None:
    store(tmp_path / "a", DESIGN)
    store(tmp_path / "b", replace(DESIGN, looks=(4,)))
    for first, second in (("a", "b"), ("b", "a")):
        with pytest.raises(UserError, match="store different designs") as error:
            find_designs([tmp_path / first, tmp_path / second])
        assert all(str(tmp_path / name / "designs" / "clip_reg_mini.json") in str(error.value) for name in "ab")


@pytest.mark.parametrize("changed", ["", '{"looks": []}', '{"looks": [5, 3]}', '{"errors": [0.025]}'])
def test_a_corrupt_design_and_one_without_looks_are_named(changed: str, tmp_path: Path) -> None:
    store(tmp_path, DESIGN)
    file = tmp_path / "designs" / "clip_reg_mini.json"
    file.write_text(changed and json.dumps(json.loads(file.read_text()) | json.loads(changed)))
    with pytest.raises(UserError, match=r"designs/clip_reg_mini\.json is corrupt"):
        find_designs([tmp_path])


def test_json_of_other_programs_is_no_design(tmp_path: Path) -> None:
    store(tmp_path / "runs", DESIGN)
    (tmp_path / "designs").mkdir()
    for name, content in (("logo", '{"name": "logo", "layers": []}'), ("colours", "[1, 2]")):
        (tmp_path / "designs" / f"{name}.json").write_text(content)
    assert find_designs([tmp_path / "runs"]) == {"clip_reg_mini": DESIGN}


def test_bounds_arms_and_measures_are_part_of_the_design() -> None:
    (text,) = describe_claims("clip_reg_mini")["1.5"].values()
    assert text.startswith("clip_reg,clip mean (1.0, -1.0) (MetricReader(task='zeroshot', metrics=('top1'), without=(")
    assert text.endswith("above 0.005") and "pool" not in text  # pool= has its default


@pytest.mark.parametrize("looks", [(), (2, 5), (5, 5), (8, 5), (3, 101)])
def test_looks_must_increase_from_three_to_the_seeds_of_replications(looks: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="increasing numbers of seeds"):
        check_looks(looks)
    assert check_looks((3, 100)) == (3, 100)


def test_error_rates_rise_with_the_share_of_the_seeds_as_in_o_brien_and_fleming() -> None:
    for looks in ((3, 5, 8), (8,), (5, 40)):
        rates = spent_errors(looks)
        assert sum(rates.values()) == pytest.approx(ERROR)
        bounds = [stats.norm.isf(rate) * (look / looks[-1]) ** 0.5 for look, rate in rates.items()]
        assert bounds == pytest.approx([bounds[-1]] * len(looks))
    assert spent_errors((3, 5, 8))[8] == pytest.approx(0.0199, abs=5e-5)
