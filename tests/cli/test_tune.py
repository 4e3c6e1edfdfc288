"""`clipx tune`: the grid grows at its edge, the shared value is kept within the noise, and killed commands resume."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from cli import tune
from cli.settings.compose import compose_run
from cli.tune import ROUNDS, Grid, Options, Trial
from clipx.errors import UserError
from clipx.run.folder import RunFolder
from tests.helpers.commands import clipx, clipx_here
from tests.helpers.folder import jpeg, write_shards

VALUES = [1.0, 2.0, 4.0]


class FakeTrial(Trial):
    """Scores without training: a peak per arm, on a logarithmic scale, and the same noise for all arms of a seed."""

    def __init__(self, **peaks: float) -> None:
        super().__init__(Options(recipe="r"), [])
        self.peaks = peaks

    def score(self, grid: Grid, wanted: list[tuple[str, float]], fixed: Any, pool: Any) -> None:
        for arm, value in wanted:
            if (arm, value) not in grid.scores:
                of_mean = 50 - abs(math.log2(value / self.peaks[arm]))
                if arm == "flat" and value in VALUES:
                    of_mean = 40
                grid.scores[arm, value] = [of_mean - 0.2, of_mean, of_mean + 0.2]


def searched(trial: FakeTrial) -> Grid:
    return trial.search(Grid("optimizer.lr"), list(trial.peaks), VALUES, {}, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("setting", "gpus"), [("train.processes=2", ["0,1", "2,3"]), ("train.device=cpu", ["", ""])])
def test_each_job_has_gpus_of_its_own(setting: str, gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pool = MagicMock(side_effect=UserError("enough"))
    monkeypatch.setattr(tune, "Pool", pool)
    monkeypatch.setattr(Trial, "check", lambda self, arm: None)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(UserError, match="enough"):
        tune.tune(["recipe=clip_reg_mini", "jobs=2", setting])
    pool.assert_called_once_with(gpus)


def test_a_grid_grows_until_the_best_value_is_inside() -> None:
    grid = searched(FakeTrial(low=0.5, high=8.0, middle=2.0))
    assert {arm: grid.best(arm) for arm in grid.arms} == {"low": 0.5, "high": 8.0, "middle": 2.0}
    assert all(grid.beyond(arm) is None for arm in grid.arms)
    assert min(grid.values("low")) == 0.25 and max(grid.values("high")) == 16.0


def test_a_grid_grows_again_from_the_best_value_of_another_arm() -> None:
    grid = searched(FakeTrial(low=0.5, flat=0.25))
    assert grid.best("flat") == 0.25 and grid.beyond("flat") is None
    assert grid.values("low")[:2] == [0.25, 0.5], "all arms have scores at the best value of each"


def test_a_grid_stops_growing_after_some_rounds_or_if_the_score_does_not_change() -> None:
    grid = searched(FakeTrial(a=1e9))
    assert max(grid.values("a")) == 4.0 * 2 ** (ROUNDS - 1) and grid.beyond("a") is not None
    flat = Grid("optimizer.lr", {("a", value): [5.0, 5.0, 5.0] for value in VALUES})
    assert flat.beyond("a") is None


def test_an_arm_keeps_the_shared_value_unless_its_own_is_better_than_the_noise() -> None:
    scores = {("a", 1.0): [10.0, 11.0, 12.0], ("a", 2.0): [13.0, 14.0, 15.0], ("a", 4.0): [9.0, 9.0, 9.0]}
    near = {("b", 1.0): [10.0, 10.5, 11.0], ("b", 2.0): [10.4, 9.9, 11.0], ("b", 4.0): [9.0, 9.0, 9.0]}
    far = {("c", 1.0): [30.0, 30.5, 31.0], ("c", 2.0): [29.0, 29.4, 29.9], ("c", 4.0): [9.0, 9.0, 9.0]}
    grid = Grid("optimizer.lr", scores | near | far)
    assert grid.shared() == 2.0
    assert (grid.best("b"), grid.chosen("b")) == (1.0, 2.0), "better by .07, with a standard error of .3"
    assert grid.chosen("c") == 1.0 and grid.chosen("a") == 2.0
    assert grid.noise() == pytest.approx(math.sqrt(sum([1, 1, 0, 0.25, 0.3033, 0, 0.25, 0.2033, 0]) / 9), abs=1e-3)


@pytest.mark.parametrize(
    ("at_own_rate", "chosen"),
    [
        ([11.0, 10.9, 11.3], ["optimizer.lr=4", "temperature.tau=2"]),
        ([10.1, 9.9, 10.6], ["optimizer.lr=2", "temperature.tau=1"]),  # better by .1, with a standard error of .17
        ([math.nan, 20.0, 20.0], ["optimizer.lr=2", "temperature.tau=1"]),
        ([10.1, 10.2, 10.3], ["optimizer.lr=2", "temperature.tau=1"]),  # by an image in each seed: no standard error
    ],
)
def test_tau_may_be_clearly_better_at_an_arms_own_best_rate(at_own_rate: list[float], chosen: list[str]) -> None:
    of_tau = {  # rate -> tau -> scores
        "optimizer.lr=2": {1.0: [10.0, 10.1, 10.2], 2.0: [9.0, 9.0, 9.0], 4.0: [8.0, 8.0, 8.0]},
        "optimizer.lr=4": {1.0: [8.0, 8.0, 8.0], 2.0: at_own_rate, 4.0: [7.0, 7.0, 7.0]},
    }

    class Scored(FakeTrial):
        def score(self, grid: Grid, wanted: list[tuple[str, float]], fixed: Any, pool: Any) -> None:
            grid.scores |= {(arm, tau): of_tau[fixed[arm][0]].get(tau, [0.0, 0.0, 0.0]) for arm, tau in wanted}

    trial = Scored()
    trial.options.tau = VALUES
    near = {("b", 2.0): [10.4, 9.9, 11.0], ("b", 4.0): [10.0, 10.5, 11.0], ("a", 2.0): [13.0, 14.0, 15.0]}
    rates = Grid("optimizer.lr", near | {("a", 4.0): [9.0, 9.0, 9.0]})
    assert (rates.best("b"), rates.chosen("b")) == (4.0, 2.0)
    kept = {arm: [f"optimizer.lr={rates.chosen(arm):g}"] for arm in "ab"}
    grids, found = tune._search_tau(trial, rates, ["a", "b"], kept, None)  # type: ignore[arg-type]
    assert found == {"a": ["optimizer.lr=2", "temperature.tau=1"], "b": chosen}
    assert [grid.arms for grid in grids] == [["a", "b"], ["b"]]


class FakePool:
    """Runs nothing; notes the run of each call, and the runs of the calls that it waits for."""

    def __init__(self) -> None:
        self.waits: list[tuple[Path, set[Path]]] = []
        self._runs: dict[Future[float], Path] = {}

    def submit(self, call: Any, argument: Any, after: Sequence[Future[float]]) -> Future[float]:
        arguments = argument[0] if call is tune._train_and_score else argument
        future: Future[float] = Future()
        future.set_result(1.0)
        self._runs[future] = RunFolder.of(compose_run(arguments)).path
        self.waits.append((self._runs[future], {self._runs[one] for one in after}))
        return future


def scored(recipe: str, *arms: str) -> FakePool:
    """Score these arms of a recipe at one learning rate."""
    pool = FakePool()
    trial = Trial(Options(recipe=recipe), [f"recipe={recipe}"])
    trial.score(Grid("optimizer.lr"), [(arm, 0.5) for arm in arms], {}, pool)  # type: ignore[arg-type]
    return pool


@pytest.mark.parametrize(
    ("recipe", "arm", "parent"),
    [("margin_mini", "tau_01", "start_01"), ("finetune_mini", "clip", "start"), ("objectives_mini", "rank", "")],
)
def test_runs_that_an_arm_starts_from_keep_their_values_and_come_first(recipe: str, arm: str, parent: str) -> None:
    pool = scored(recipe, arm)
    of_seed = [(run, waits) for run, waits in pool.waits if run.name == "s1000"]
    start = f"runs/{recipe}-{parent}/s1000"
    parents = [Path(start)] if parent else []
    init = f"-model.init_{start.replace('/', '_')}" if parent else ""
    assert [run for run, _ in of_seed] == [*parents, Path(f"runs/{recipe}-{arm}{init}-optimizer.lr_0.5/s1000")]
    assert of_seed[-1][1] == set(parents)
    assert len(pool.waits) == 3 * len(of_seed)


def test_arms_share_the_run_that_they_start_from() -> None:
    pool = scored("margin_mini", "tau_01", "tau_01_reg")
    start = Path("runs/margin_mini-start_01/s1001")
    assert [waits for run, waits in pool.waits if run == start] == [set()]
    assert sum(start in waits for run, waits in pool.waits if run != start) == 2


def test_arms_that_start_from_each_other_are_not_followed_for_ever(own_recipes: Path) -> None:
    arms = "{a: [model.init=arm:b], b: [model.init=arm:a]}"
    (own_recipes / "circle.yaml").write_text(f"defaults: [demo]\narms: {arms}\n")
    assert len(scored("circle", "a").waits) == 9


def test_a_value_whose_seed_diverged_is_never_chosen() -> None:
    grid = Grid("optimizer.lr", {("a", 1.0): [1.0, 1.0, 1.0], ("a", 2.0): [99.0, math.nan, 99.0]})
    assert grid.best("a") == grid.chosen("a") == 1.0


RECIPE = """
data: {name: test, source: shards, root: data, workers: 0, held_out: 0.5, evaluation: [], crop_scale: [1.0, 1.0]}
model: {image: {name: "small:conv"}, text: {name: "small:bag"}, embed_dim: 16}
train: {samples: 32, batch_size: 16}
schedule: {warmup_steps: 0}
arms:
  clip: []
"""


def test_too_few_images_are_refused_before_training(tmp_path: Path) -> None:
    """An image with two captions counts once, and a corrupt one not."""
    rows = [f"{image}.jpg,caption {k} of {image}" for image in range(16) for k in range(2)]
    (tmp_path / "data/train").mkdir(parents=True)
    (tmp_path / "data/t.csv").write_text("\n".join(["image,caption", *rows]))
    for image in range(16):
        (tmp_path / f"data/train/{image}.jpg").write_bytes(jpeg("red") if image else b"corrupt")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    data = ["data.source=csv", "data.annotations=t.csv", "data.captions=each", "data.held_out=0.9"]
    done = clipx_here("tune", "recipe=tiny", "--config-dir=.", *data, cwd=tmp_path, code=2)
    assert "on=held_out has 13 images, and below 1,000 noise decides" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
@pytest.mark.guards_data
def test_eight_arms_killed_and_resumed_end_with_the_same_table_and_a_further_call_trains_nothing(
    tmp_path: Path,
) -> None:
    write_shards(tmp_path / "data/train", 2 * tune.FEWEST_IMAGES + 100)
    arms = "".join(f"  a{k}: [objective=clip, train.batch_size={8 + k}]\n" for k in range(8))
    (tmp_path / "tiny.yaml").write_text(RECIPE.partition("arms:")[0] + "arms:\n" + arms)
    command = ["tune", "recipe=tiny", "--config-dir=.", "lr=1e-3,2e-3"]
    whole = clipx(*command, "out=whole", "jobs=2", cwd=tmp_path).stdout
    assert f"  a7: [{json.loads((tmp_path / 'whole/tuning.json').read_text())['chosen']['a7'][0]}]" in whole
    logs = sorted((tmp_path / "whole/runs").rglob("log.jsonl"))
    assert {log.parent.name for log in logs} == {"s1000", "s1001", "s1002"}
    before = [log.stat().st_mtime_ns for log in logs]
    assert clipx(*command, "out=whole", cwd=tmp_path).stdout == whole
    assert [log.stat().st_mtime_ns for log in logs] == before
    call = [sys.executable, "-m", "cli.main", *command, "out=killed"]
    with subprocess.Popen(call, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("4/"):
            assert process.poll() is None
        process.kill()
    assert clipx(*command, "out=killed", cwd=tmp_path).stdout.replace("killed/", "whole/") == whole
    tables = [(tmp_path / out / "tuning.csv").read_text() for out in ("killed", "whole")]
    assert tables[0] == tables[1] and tables[0].count(",a7,") >= 2
