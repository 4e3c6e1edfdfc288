"""`clipx reproduce scale=AXIS`: the same arms and seeds at each point that the recipe names."""

from pathlib import Path

import pytest

from cli.reproduce.plan import composed, designs_of, make_plan
from cli.settings.recipes import load_recipe, recipe
from clipx.config.schema import AXES, RunConfig
from clipx.config.setting import check_key
from clipx.errors import UserError

POINTS = [2500, 10_000, 40_000, 160_000, 640_000]


def test_each_point_has_all_arms_and_seeds_under_its_own_name() -> None:
    plan = make_plan(["recipe=scaling_mini", "scale=samples", "arms=clip,nuclr", "seeds=2"])
    configs = composed(plan.overrides)
    expected = [(n, seed, arm) for n in POINTS for seed in (0, 1) for arm in ("clip", "nuclr")]
    assert [(c.train.samples, c.seed, c.arm) for c in configs] == expected
    assert configs[0].name == "scaling_mini-clip-train.samples_2500"
    assert len({(c.name, c.seed) for c in configs}) == len(configs)
    assert plan.options.scale == ["samples"]


def test_two_axes_are_two_ladders_and_towers_change_together() -> None:
    plan = make_plan(["recipe=scaling_datacomp", "scale=[samples,width]", "arms=clip", "seeds=1"])
    configs = composed(plan.overrides)
    assert len(configs) == 10
    assert [c.model.image.name for c in configs[:5]] == ["open_clip:ViT-B-32"] * 5
    widths = configs[5:]
    assert [c.model.image.name for c in widths] == [c.model.text.name for c in widths]
    assert widths[0].name == "scaling_datacomp-clip-model.image.name_open_clip_ViT-S-32-alt-model.text.name_" + (
        "open_clip_ViT-S-32-alt"
    )


def test_without_scale_the_recipe_runs_once() -> None:
    plan = make_plan(["recipe=scaling_mini", "arms=clip", "seeds=1"])
    assert [c.train.samples for c in composed(plan.overrides)] == [640_000]


def test_a_ladder_stores_no_design_because_claims_are_about_the_recipes_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[3] / "recipes" / "gap_mini.yaml").read_text() + "scale: {batch: [16, 32, 64, 128]}\n"
    (tmp_path / "gap_mini.yaml").write_text(text)
    monkeypatch.setattr("sys.argv", ["clipx", "--config-dir", str(tmp_path)])
    assert designs_of(make_plan(["recipe=gap_mini", "scale=batch"])) == []
    assert len(designs_of(make_plan(["recipe=gap_mini"]))) == 1


def test_a_setting_of_the_axis_cannot_be_given_for_all_points() -> None:
    with pytest.raises(UserError, match=r"train\.samples is given twice"):
        composed(make_plan(["recipe=scaling_mini", "scale=samples", "train.samples=10"]).overrides)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ("{depth: [1, 2, 3, 4]}", r"axis of scale=depth is not known; .*allowed: batch, data, samples, width"),
        ("{samples: [1, 2]}", r"scale\.samples=\[1, 2\] must be a list of 3 or more points"),
        ("{samples: 3}", r"scale\.samples=3 must be a list of 3 or more points"),
        ("{batch: [1, 2, 3, 4], lr: {batch: [1]}}", r"scale\.lr\.batch=\[1\] must be a list of 4 rates"),
        ("[samples]", "scale must be lines of the form AXIS"),
    ],
)
def test_a_malformed_scale_names_the_recipe(tmp_path: Path, scale: str, message: str) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(f"scale: {scale}\n")
    with pytest.raises(UserError, match=message):
        load_recipe(file)


def test_a_point_may_have_its_own_learning_rate(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("scale: {batch: [1, 2, 3, 4], lr: {batch: [0.1, 0.2, 0.3, 0.4]}}\n")
    assert load_recipe(file).scale["batch"][1] == ["train.batch_size=2", "optimizer.lr=0.2"]


def test_axes_are_settings_and_the_recipes_points_ascend() -> None:
    for keys in AXES.values():
        for key in keys:
            check_key(RunConfig, key)
    for name in ("scaling_mini", "scaling_datacomp"):
        of_samples = [int(point[0].partition("=")[2]) for point in recipe(name).scale["samples"]]
        assert of_samples == sorted(of_samples) and len(of_samples) == 5
