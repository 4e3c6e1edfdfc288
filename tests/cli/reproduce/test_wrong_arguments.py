"""Wrong arguments of `clipx reproduce` are refused in one line before anything runs."""

import re
from pathlib import Path

import pytest

from cli.reproduce.plan import make_plan
from clipx.errors import UserError

GAP = "recipe=gap_mini"
WRONG = {  # arguments -> part of the message
    "": "recipe= is missing",
    "recipe=gap_mni": "did you mean 'gap_mini'",
    f"{GAP} seeds=none": "seeds=none must be a whole number; allowed: 1 or more",
    f"{GAP} jobs=0": "jobs=0 is out of range; allowed: 1 or more",
    f"{GAP} dry=ture": "dry=ture must be true or false",
    f"{GAP} arm=base": "arm=base is for clipx train; here write arms=base",
    f"{GAP} seed=1": "seed=1 is for clipx train; here write seeds=3",
    f"{GAP} temperature.tau=0.05": "temperature.tau= cannot be set for all runs, because arm=flt_1e-2",
    f"{GAP} share=0": "share=0 is out of range; allowed: 0.01..1",
    f"{GAP} share=much": "share=much must be a number; allowed: 0.01..1",
    f"{GAP} device=H10 dry=true": "device=H10 is not known",
    f"{GAP} device=H200": "device=H200 needs dry=true; runs take train.device=",
    f"{GAP} seeds=2 seeds=5": "seeds is given twice",
    f"{GAP} until=foo": "until=foo is not known; allowed: decided",
    f"{GAP} until=decided seeds=5": "seeds=5 contradicts until=decided, which adds seeds: use max_seeds=N",
    f"{GAP} until=decided max_seeds=2": "max_seeds=2 is below the first look, at 3 seeds",
    f"{GAP} until=decided looks=[5,8] max_seeds=4": "max_seeds=4 is below the first look, at 5 seeds",
    f"{GAP} until=decided max_seeds=many": "max_seeds=many must be a whole number; allowed: 1 or more",
    f"{GAP} until=decided hours=0": "hours=0 is out of range; allowed: 0.01..10000",
    f"{GAP} until=decided looks=[5,3]": "looks=[5, 3] must be increasing numbers of seeds, the first at least 3",
    f"{GAP} until=decided looks=[3,3]": "looks=[3, 3] must be increasing",
    f"{GAP} until=decided looks=[2,5]": "looks=[2, 5] must be increasing",
    f"{GAP} looks=[3,x]": "looks=x must be a whole number",
    f"{GAP} max_seeds=5": "max_seeds=5 needs until=decided",
    f"{GAP} hours=5": "hours=5 needs until=decided",
    f"{GAP} scale=samples": "scale=samples: recipe=gap_mini has no ladder; add one to the recipe, for example scale:",
    "recipe=demo until=decided": "until=decided: recipe=demo tests no claim; use seeds=N",
    "recipe=gap_mni until=decided": "did you mean 'gap_mini'",
    "recipe=scaling_mini scale=depth": "recipe=scaling_mini: scale=depth is not known; allowed: samples",
    "recipe=scaling_mini scale=": "scale= has no value",
}


def test_folders_of_other_recipes_and_reports_do_not_count_as_runs_of_a_recipe(tmp_path: Path) -> None:
    for name in ("gap_mini_own-base/s0", "gap_mini-report/scaling_files"):
        (tmp_path / name).mkdir(parents=True)
    make_plan([GAP, "looks=[3,5]", f"runs={tmp_path}"])
    (tmp_path / "gap_mini-base" / "s0").mkdir(parents=True)
    with pytest.raises(UserError, match=r"looks=3,5 must be chosen before the first seed, but .*gap_mini-base/s0"):
        make_plan([GAP, "looks=[3,5]", f"runs={tmp_path}"])


@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments_are_refused_in_one_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(WRONG[line])) as error:
        make_plan([*line.split(), f"runs={tmp_path}"])
    assert "\n" not in str(error.value)
