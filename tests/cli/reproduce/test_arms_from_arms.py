"""Arms that start from the weights of another arm (model.init=arm:NAME) or learn from it (model.teacher=arm:NAME)."""

import json
from pathlib import Path

import pytest

from cli.reproduce.plan import composed
from tests.helpers.commands import clipx_here, write_recipe

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


@pytest.fixture(autouse=True)
def recipe(tmp_path: Path) -> None:
    write_recipe(tmp_path, "chain", RECIPE, samples=16)


@pytest.mark.long
def test_each_arm_starts_from_the_weights_of_its_own_seed(tmp_path: Path) -> None:
    clipx_here("reproduce", "recipe=chain", "jobs=2", "--config-dir=recipes", cwd=tmp_path)
    for seed in (0, 1):
        for arm, parent in (("second", "first"), ("again", "second")):
            init = json.loads((tmp_path / f"runs/chain-{arm}/s{seed}/environment.json").read_text())["init"]
            assert init["checkpoint"] == f"runs/chain-{parent}/s{seed}/checkpoints/step_00000002"


def test_a_start_run_that_is_named_with_the_seed_is_that_of_each_seed() -> None:
    overrides = ["recipe=clip_reg_mini", "arm=clip", "model.init='runs/a/s${seed}'"]
    configs = composed([[*overrides, f"seed={seed}"] for seed in (0, 1)])
    assert [config.model.init for config in configs] == ["runs/a/s0", "runs/a/s1"]


@pytest.mark.long
def test_an_arm_learns_from_the_arm_of_its_own_seed(tmp_path: Path) -> None:
    file = tmp_path / "recipes" / "chain.yaml"
    taught = "model.init=arm:first, model.teacher=arm:again, +objective.distill.weight=1"
    file.write_text(file.read_text().replace("arms:\n", f"arms:\n  taught: [{taught}]\n"))
    clipx_here("reproduce", "recipe=chain", "seeds=1", "jobs=2", "--config-dir=recipes", cwd=tmp_path)
    recorded = json.loads((tmp_path / "runs/chain-taught/s0/environment.json").read_text())
    for key, arm in (("init", "first"), ("teacher", "again")):
        assert recorded[key]["checkpoint"] == f"runs/chain-{arm}/s0/checkpoints/step_00000002"


def test_the_parent_must_be_trained_first(tmp_path: Path) -> None:
    done = clipx_here("train", "recipe=chain", "arm=second", "seed=3", "--config-dir=recipes", cwd=tmp_path, code=2)
    assert "clipx train recipe=chain arm=first seed=3" in done.stderr.splitlines()[-1]


def test_arms_that_start_from_each_other_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "recipes" / "chain.yaml"
    file.write_text(file.read_text().replace("optimizer.lr=0.01", "model.init=arm:again"))
    done = clipx_here("reproduce", "recipe=chain", "--config-dir=recipes", cwd=tmp_path, code=2)
    assert "start from each other" in done.stderr.splitlines()[-1]


def test_an_unknown_arm_is_refused(tmp_path: Path) -> None:
    override = ["model.init=arm:frist", "arm=first", "train.samples=8"]
    done = clipx_here("train", "recipe=chain", *override, "--config-dir=recipes", cwd=tmp_path, code=2)
    assert "did you mean 'first'" in done.stderr.splitlines()[-1]
