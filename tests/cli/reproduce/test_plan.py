"""The runs of `clipx reproduce`: arms and seeds, points of a ladder, arms that start from or learn from other arms."""

import json
from itertools import product
from pathlib import Path

import pytest

from cli.reproduce.plan import composed, designs_of, make_plan
from cli.settings.compose import compose_run
from clipx.config.schema import AXES, RunConfig
from clipx.config.setting import settings_of
from clipx.errors import UserError
from tests.helpers.commands import clipx_here, write_recipe

POINTS = [2500, 10_000, 40_000, 160_000, 640_000]
RECIPE = """
model: {{image: {{name: "small:conv"}}, text: {{name: "small:bag"}}}}
data: {{source: shards, root: {root}, name: mine, workers: 0, evaluation: []}}
train: {{samples: 16, batch_size: 8}}
schedule: {{warmup_steps: 0}}
arms:
  again: [model.init=arm:second]
  second: [model.init=arm:first]
  first: [optimizer.lr=0.01]
seeds: 2
"""


def test_seeds_come_first_so_that_early_results_compare_arms() -> None:
    plan = make_plan(["recipe=gap_mini", "arms=base,slrt", "seeds=2", "jobs=2", "optimizer.weight_decay=1"])
    assert plan.overrides == [
        ["recipe=gap_mini", f"arm={arm}", f"seed={seed}", "optimizer.weight_decay=1"]
        for seed in (0, 1)
        for arm in ("base", "slrt")
    ]
    assert composed(plan.overrides) == [compose_run(overrides) for overrides in plan.overrides]
    assert plan.options.jobs == 2 and plan.out == Path("runs/gap_mini-report")


def test_a_name_given_twice_counts_once() -> None:
    once = make_plan(["recipe=scaling_mini", "arms=clip", "scale=samples", "seeds=1"])
    twice = make_plan(["recipe=scaling_mini,scaling_mini", "arms=clip,clip", "scale=samples,samples", "seeds=1"])
    assert (twice.overrides, twice.out) == (once.overrides, once.out)


def test_a_replication_has_seeds_of_its_own() -> None:
    plan = make_plan(["recipe=gap_mini", "arms=base", "first_seed=100"])
    assert plan.overrides == [["recipe=gap_mini", "arm=base", f"seed={seed}"] for seed in range(100, 108)]


def test_several_recipes_share_one_report() -> None:
    plan = make_plan(["recipe=gap_mini,gap_init_mini", "seeds=1", "runs=für mich"])  # needs no quotes
    assert ["recipe=gap_init_mini", "seed=0", "runs=für mich"] in plan.overrides
    assert plan.out == Path("für mich/gap_mini+gap_init_mini-report")


def test_recipes_on_several_data_sets_take_their_folders_by_name() -> None:
    recipes = "recipe=nuclr_cc3m,nuclr_cc12m,gap_init_mini"
    plan = make_plan([recipes, "seeds=1", "cc3m=/three", "cc12m=/twelve"])
    assert ["recipe=nuclr_cc3m", "arm=clip", "seed=0", "data.root=/three"] in plan.overrides
    assert ["recipe=nuclr_cc12m", "arm=clip", "seed=0", "data.root=/twelve"] in plan.overrides
    assert ["recipe=gap_init_mini", "seed=0"] in plan.overrides
    other = make_plan(["recipe=nuclr_cc3m", "seeds=1", "data=cc12m", "cc12m=/twelve"])
    assert ["recipe=nuclr_cc3m", "arm=clip", "seed=0", "data.root=/twelve", "data=cc12m"] in other.overrides
    with pytest.raises(UserError, match="mscoco=/c: no recipe here uses mscoco, only cc3m, cc12m, small_scenes"):
        make_plan([recipes, "mscoco=/c"])


def test_each_point_has_all_arms_and_seeds_under_its_own_name() -> None:
    plan = make_plan(["recipe=scaling_mini", "scale=samples", "arms=clip,nuclr", "seeds=2"])
    configs = composed(plan.overrides)
    expected = [(n, seed, arm) for n in POINTS for seed in (0, 1) for arm in ("clip", "nuclr")]
    assert [(c.train.samples, c.seed, c.arm) for c in configs] == expected
    assert configs[0].name == "scaling_mini-clip-train.samples_2500"
    assert len({(c.name, c.seed) for c in configs}) == len(configs)
    assert plan.options.scale == ["samples"]
    once = make_plan(["recipe=scaling_mini", "arms=clip", "seeds=1"])
    assert [c.train.samples for c in composed(once.overrides)] == [640_000]


def test_two_axes_are_two_ladders_and_towers_change_together() -> None:
    plan = make_plan(["recipe=scaling_datacomp", "scale=[samples,width]", "arms=clip", "seeds=1"])
    configs = composed(plan.overrides)
    assert len(configs) == 10
    assert [c.model.image.name for c in configs[:5]] == ["open_clip:ViT-B-32"] * 5
    widths = configs[5:]
    assert [c.model.image.name for c in widths] == [c.model.text.name for c in widths]
    assert len({config.name for config in widths}) == 5


def test_a_ladder_stores_no_design_because_claims_are_about_the_recipes_scale(own_recipes: Path) -> None:
    text = (Path(__file__).parents[3] / "recipes" / "gap_mini.yaml").read_text() + "scale: {batch: [16, 32, 64, 128]}\n"
    (own_recipes / "gap_mini.yaml").write_text(text)
    assert designs_of(make_plan(["recipe=gap_mini", "scale=batch"])) == []
    assert len(designs_of(make_plan(["recipe=gap_mini"]))) == 1


def test_a_design_has_the_looks_and_failures_of_its_recipe_and_the_controls_of_its_claims(own_recipes: Path) -> None:
    text = (Path(__file__).parents[3] / "recipes" / "gap_mini.yaml").read_text()
    (own_recipes / "gap_mini.yaml").write_text(text + "looks: [8, 20]\nfailed_loss: 3.5\n")
    (design,) = designs_of(make_plan(["recipe=gap_mini"]))
    assert (design.looks, design.failed_loss) == ((8, 20), 3.5)
    assert len(design.errors) == 2 and sum(design.errors) == pytest.approx(0.025)
    assert design.claims["4.4"]["control, the learning rate"] == "optimizer.lr=0.016"


def test_the_runs_of_a_control_have_no_design_so_that_a_report_reads_them_beside_the_others() -> None:
    base = ["recipe=gap_mini", "arms=base,flt_4e-2", "runs=other"]
    found = [len(designs_of(make_plan([*base, *more]))) for more in ([], ["optimizer.lr=1.6e-2"], ["optimizer.lr=1"])]
    assert found == [1, 0, 1]


def test_axes_are_settings() -> None:
    assert {key for keys in AXES.values() for key in keys} <= settings_of(RunConfig).keys()


@pytest.fixture
def chain(tmp_path: Path) -> None:
    write_recipe(tmp_path, "chain", RECIPE, samples=16)


@pytest.mark.usefixtures("chain")
@pytest.mark.long
def test_each_arm_starts_and_learns_from_the_runs_of_its_own_seed(tmp_path: Path) -> None:
    file = tmp_path / "recipes" / "chain.yaml"
    taught = "model.init=arm:first, model.teacher=arm:again, +objective.distill.weight=1"
    file.write_text(file.read_text().replace("arms:\n", f"arms:\n  taught: [{taught}]\n"))
    clipx_here("reproduce", "recipe=chain", "jobs=2", "--config-dir=recipes", cwd=tmp_path)
    parents = [("second", "init", "first"), ("again", "init", "second")]
    parents += [("taught", "init", "first"), ("taught", "teacher", "again")]
    for seed, (arm, key, parent) in product((0, 1), parents):
        recorded = json.loads((tmp_path / f"runs/chain-{arm}/s{seed}/environment.json").read_text())[key]
        assert recorded["checkpoint"] == f"runs/chain-{parent}/s{seed}/checkpoints/step_00000002"


def test_a_start_run_that_is_named_with_the_seed_is_that_of_each_seed() -> None:
    overrides = ["recipe=clip_reg_mini", "arm=clip", "model.init='runs/a/s${seed}'"]
    configs = composed([[*overrides, f"seed={seed}"] for seed in (0, 1)])
    assert [config.model.init for config in configs] == ["runs/a/s0", "runs/a/s1"]


@pytest.mark.usefixtures("chain")
def test_arms_that_start_from_each_other_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "recipes" / "chain.yaml"
    file.write_text(file.read_text().replace("optimizer.lr=0.01", "model.init=arm:again"))
    done = clipx_here("reproduce", "recipe=chain", "--config-dir=recipes", cwd=tmp_path, code=2)
    assert "start from each other" in done.stderr.splitlines()[-1]
