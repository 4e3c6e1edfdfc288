"""The script of launch.slurm submits arrays in the order of the runs; a fake sbatch takes the place of SLURM's."""

import os
from pathlib import Path

import pytest

from cli.settings.compose import submitted_runs
from tests.helpers.commands import RECIPE, clipx_here, write_recipe

SBATCH = """#!/bin/bash
number=$(($(ls submitted | wc -l) + 1))
(echo "$@"; cat) > submitted/$number
[ "$FAILS" != "$number" ] || { echo "sbatch: error: invalid partition" >&2; exit 1; }
echo "$number;cluster"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a recipe and a fake sbatch, which writes options and script of each job to submitted/N."""
    child = "child: [model.init=arm:plain, train.processes=2]"
    write_recipe(tmp_path, "family", RECIPE.replace("hot: [temperature.tau=0.5]", child))
    for name in ("submitted", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "sbatch").write_text(SBATCH)
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


REPRODUCE = ["reproduce", "recipe=family", "--config-dir=recipes", "launch.slurm=--time=1 --comment='a b'", "jobs=3"]


def test_runs_wait_for_the_runs_that_they_start_from_and_the_report_for_all(folder: Path) -> None:
    clipx_here(*REPRODUCE, "launch.submit=false", cwd=folder)
    assert not [*(folder / "submitted").iterdir()] and not (folder / "runs" / "family-plain").exists()
    done = clipx_here(*REPRODUCE, "report=false", cwd=folder)  # the report's job has report=true instead
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [
        "clipx: job 1", "clipx: job 2", "clipx-report: job 3"
    ]  # fmt: skip
    plain, child, report = [(folder / "submitted" / f"{number}").read_text() for number in (1, 2, 3)]
    assert "--dependency" not in plain and "--dependency=afterany:1\n" in child
    assert "--dependency=afterany:1:2\n" in report
    for text, gpus in ((plain, 1), (child, 2), (report, 1)):
        assert f" --gpus-per-node={gpus} " in text and "#SBATCH --time=1 --comment='a b'\n" in text
    assert "--array=0-1%3 " in plain and "--array=0-1%3 " in child and "--array" not in report
    assert "1) set -- cli.reproduce.command recipe=family arm=child seed=1 --config-dir=recipes ;;" in child
    assert "0) set -- cli.main reproduce recipe=family jobs=3 --config-dir=recipes report=true ;;" in report


def test_the_job_of_a_run_submits_no_further_job(folder: Path) -> None:
    train = ["train", "recipe=family", "arm=plain", "--config-dir=recipes", "++launch.slurm=--time=1"]
    script = clipx_here(*train, "launch.submit=false", cwd=folder).stdout
    assert "0) set -- cli.main train recipe=family arm=plain --config-dir=recipes ;;" in script


def test_a_run_with_launch_slurm_null_is_not_submitted() -> None:
    assert submitted_runs(["recipe=demo", "launch.slurm=null"]) == []
    assert submitted_runs(["recipe=demo", "launch.slurm="]) == [["recipe=demo", "launch.slurm="]]


def test_a_refused_job_ends_in_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "2")
    done = clipx_here(*REPRODUCE, cwd=folder, code=2)
    assert "clipx: job 1," in done.stdout  # what runs
    assert done.stderr.splitlines()[-1].endswith("SLURM refuses the jobs: sbatch: error: invalid partition")


def test_a_report_by_hand_names_the_runs_that_are_not_finished(folder: Path) -> None:
    done = clipx_here(*REPRODUCE, "report=true", cwd=folder, code=1)
    assert not [*(folder / "submitted").iterdir()]
    assert "4 of 4 runs failed: runs/family-plain/s0 failed: new, not finished" in done.stderr
