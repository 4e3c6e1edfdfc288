"""`clipx reproduce` runs all arms and seeds and can be resumed; a failed run does not stop the other runs."""

import json
import os
import shutil
import signal
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from cli.launcher.process_pool import gpus_of_each_job
from cli.reproduce.command import reproduce
from cli.reproduce.plan import make_plan
from clipx.errors import Fault, UserError
from tests.helpers import fakes
from tests.helpers.commands import RECIPE, clipx, clipx_here, write_recipe
from tests.helpers.runs import lines


@pytest.mark.guards_data
@pytest.mark.long
def test_all_runs_are_trained_evaluated_and_reported_once(tmp_path: Path) -> None:
    write_recipe(tmp_path, "two", RECIPE)
    folder = tmp_path / "runs (1)"  # Hydra reads this name only in quotes
    command = ["reproduce", "recipe=two", f"runs='{folder.name}'", "--config-dir", "recipes"]
    dry = clipx_here(*command, "dry=true", cwd=tmp_path)
    assert dry.stdout.count("s0..s1      8 pairs/step") == 2 and not folder.exists()
    clipx(*command, cwd=tmp_path)
    runs = sorted(folder.glob("two-*/s*"))
    assert [f"{run.parent.name}/{run.name}" for run in runs] == [
        "two-hot/s0", "two-hot/s1", "two-plain/s0", "two-plain/s1"
    ]  # fmt: skip
    rows = [lines(run / "results.jsonl") for run in runs]
    assert all({"retrieval", "geometry"} <= {row["task"] for row in one} for one in rows)
    assert all(any("4 of 32" in row["split"] for row in one) for one in rows)
    assert (folder / "two-report" / "report.html").exists()
    before = {run: (run / "log.jsonl").stat().st_mtime_ns for run in runs}
    shutil.rmtree(runs[0] / "checkpoints")  # an evaluated run needs no weights
    (runs[1] / "timing.json").unlink()  # as if the evaluation had been killed
    clipx_here(*command, cwd=tmp_path)
    assert (runs[1] / "timing.json").exists()
    assert {run: (run / "log.jsonl").stat().st_mtime_ns for run in runs} == before
    assert not (runs[0] / "checkpoints").exists()
    assert clipx_here(*command, "dry=true", cwd=tmp_path).stdout.count("2 finished") == 2
    config = runs[0] / "config.yaml"
    config.write_text(config.read_text().replace("tau: 0.5", "tau: 0.4"))
    refused = clipx_here(*command, cwd=tmp_path, code=2)
    assert "hot/s0 already holds a run with other settings (temperature.tau: 0.4 -> 0.5)" in refused.stderr


def broken(overrides: list[str]) -> str:
    """Raise an error for arm=base; kill this process for arm=softplus."""
    if "arm=base" in overrides:
        raise RuntimeError("a bug")
    if "arm=softplus" in overrides:
        os.kill(os.getpid(), signal.SIGKILL)
    return "trained"


@pytest.mark.guards_data
@pytest.mark.long
def test_an_exception_or_a_killed_process_ends_only_its_own_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cli.reproduce.command.run_one", broken)
    monkeypatch.setattr("cli.reproduce.command._check_evaluations", list)
    monkeypatch.setattr("cli.reproduce.command._can_be_reported", lambda run: False)
    message = "its process was killed; runs/gap_mini-softplus/s0/output.log shows its progress; run the same command"
    with pytest.raises(Fault, match="2 of 3 runs failed: runs/gap_mini-base/s0 failed: a bug; ") as raised:
        reproduce(["recipe=gap_mini", "arms=base,softplus,slrt", "seeds=1"])
    assert f"runs/gap_mini-softplus/s0 failed: {message} to resume" in str(raised.value)
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == "1/3 runs/gap_mini-base/s0 failed: a bug"
    assert printed[1].startswith("2/3 runs/gap_mini-softplus/s0 failed: its process was killed")
    assert printed[2] == "3/3 runs/gap_mini-slrt/s0 trained"


@pytest.mark.long
def test_a_failed_and_a_diverged_run_are_named_and_the_experiment_continues(tmp_path: Path) -> None:
    hot = "hot: [optimizer.lr=1e30, schedule.warmup_steps=1, train.max_bad_steps=2, train.samples=160]"
    write_recipe(
        tmp_path, "two", RECIPE.replace("hot: [temperature.tau=0.5]", f"cold: [temperature.tau=0.001]\n  {hot}")
    )
    done = clipx_here("reproduce", "recipe=two", "seeds=1", "--config-dir=recipes", cwd=tmp_path, code=2)
    assert "1 of 3 runs failed: runs/two-cold/s0 failed: temperature.tau=0.001 is outside" in done.stderr
    assert (tmp_path / "runs" / "two-plain" / "s0" / "results.jsonl").exists()
    assert "runs/two-hot/s0 diverged at step" in done.stderr
    hot_run = tmp_path / "runs" / "two-hot" / "s0"
    assert json.loads((hot_run / "outcome.json").read_text())["bad_steps"] == 2
    assert [row["task"] for row in lines(hot_run / "results.jsonl")] == ["train"]
    assert (tmp_path / "runs" / "two-report" / "report.html").exists()


def test_evaluation_sets_that_are_missing_or_do_not_fit_are_refused_before_the_first_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"one.*two.*choose other sets: data.evaluation="):
        reproduce(["recipe=gap_mscoco", f"data.root={tmp_path}", "data.evaluation=[cifar10:one,dtd:two]"])
    fakes.labelled(tmp_path / "evaluation" / "sets")
    with pytest.raises(UserError, match=r"recipe=clip_reg_cc3m: tasks=retrieval needs a captioned data set"):
        reproduce(["recipe=clip_reg_cc3m", f"data.root={tmp_path}", "data.evaluation=[wds:evaluation/sets]"])


def test_each_job_has_its_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    count = MagicMock()
    monkeypatch.setattr("torch.cuda.device_count", count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for gpus, jobs, processes, expected in (
        (0, 2, 1, ["", ""]),
        (4, 1, 1, [""]),
        (4, None, 1, ["0", "1", "2", "3"]),
        (4, 3, 0, ["", "", ""]),
        (5, None, 2, ["0,1", "2,3"]),
        (2, None, 8, [""]),
    ):
        count.return_value = gpus
        assert gpus_of_each_job(jobs, processes) == expected
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert gpus_of_each_job(2, 1) == ["5", "7"]


def test_more_jobs_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    with pytest.raises(UserError, match=r"jobs=5, but this machine has 4 GPUs; allowed: 1\.\.4"):
        reproduce(["recipe=gap_dynamics_mini", "jobs=5"])
    with pytest.raises(UserError, match=r"jobs=2, but this machine has 4 GPUs, and each run needs 3; allowed: 1\.\.1"):
        gpus_of_each_job(2, processes=3)


def test_arms_are_those_that_each_recipe_has() -> None:
    plan = make_plan(["recipe=gap_mini,gap_dynamics_mini,gap_init_mini", "arms=base,learned", "seeds=1"])
    assert plan.overrides == [
        ["recipe=gap_mini", "arm=base", "seed=0"], ["recipe=gap_dynamics_mini", "arm=learned", "seed=0"]
    ]  # fmt: skip
    assert {*plan.looks} == {"gap_mini", "gap_dynamics_mini"}
