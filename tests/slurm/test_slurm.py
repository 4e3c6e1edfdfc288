"""SLURM saves, requeues and resumes runs, also after the loss of a node (`make test-slurm`)."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clipx.run.checkpoint import checkpoints
from tests.helpers.commands import RECIPE, tiny, write_recipe
from tests.helpers.runs import lines, weights
from tests.slurm.cluster import INSTALLED, NODES, Cluster, running_cluster, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.long]
STEPS = 120  # enough that a run does not end before a signal that is sent at its first step
CPU = ["train.device=cpu", "log.every=1", "train.save_every=10", "launch.slurm=--time=60 --cpus-per-task=2"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not INSTALLED.exists():
        pytest.skip("`make test-slurm` unpacks SLURM and runs this test")
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a working folder with data and two recipes of two arms and three seeds."""
    folder = tmp_path_factory.mktemp("work")
    recipe = RECIPE.replace("samples: 16", f"samples: {8 * STEPS}").replace("seeds: 2", "seeds: 3")
    write_recipe(folder, "one", recipe)
    other = recipe.replace("hot: [temperature.tau=0.5]", "cold: [temperature.tau=0.05]")
    (folder / "recipes" / "two.yaml").write_text(other.format(root=folder / "shards"))
    return folder


def test_a_run_stopped_by_the_time_limit_is_requeued_and_ends_with_the_weights_of_an_uninterrupted_run(
    cluster: Cluster, folder: Path
) -> None:
    number = submit(cluster, folder, "stopped")
    run = folder / "runs" / "stopped" / "s0"
    cluster.wait_for(number, lambda: log_lines(run), f"{run} has no step")
    cluster.run("scancel", "--signal=STOP", number)  # otherwise the run may end before SLURM checks time limits
    cluster.run("scontrol", "update", f"jobid={number}", "EndTime=now+110seconds")
    log, warned = cluster.folder / "slurmctld.log", f"warning signal {signal.SIGUSR1.value} to JobId={number}"
    cluster.wait_for(number, lambda: warned in log.read_text(), "SLURM sent no SIGUSR1")
    cluster.run("scancel", "--signal=CONT", number)
    cluster.start_requeued(number, TimeLimit="60")
    cluster.wait_for_state(number, "COMPLETED")
    printed = output(folder, number)
    (step,) = re.findall(rf"SIGUSR1: saved at step (\d+) of {STEPS};", printed)
    assert f"resumed from runs/stopped/s0/checkpoints/step_{int(step):08d}" in printed
    assert printed.count("2 processes on CPU") == 2
    cluster.run(*train("whole"), "train.processes=2", cwd=folder)
    assert_same_weights(run, folder / "runs" / "whole" / "s0")


def test_a_run_that_loses_the_node_of_rank_0_ends_on_the_other_node(cluster: Cluster, folder: Path) -> None:
    number = submit(cluster, folder, "lost")
    run = folder / "runs" / "lost" / "s0"
    cluster.wait_for(number, lambda: checkpoints(run), f"{run} has no checkpoint")
    cluster.run("scontrol", "update", f"nodename={NODES[0]}", "state=down", "reason=test")
    try:
        cluster.start_requeued(number, NumNodes="1", NumTasks="1")
        cluster.wait_for_state(number, "COMPLETED")
        assert cluster.job(number, "NodeList") == NODES[1]
    finally:
        cluster.run("scontrol", "update", f"nodename={NODES[0]}", "state=resume")
    printed = output(folder, number)
    assert "2 processes on CPU" in printed and f"step {STEPS}/{STEPS}" in printed.split("resumed from")[1]


def test_twelve_runs_of_two_recipes_survive_a_kill_and_a_lost_node_and_make_one_report(
    cluster: Cluster, folder: Path
) -> None:
    command = [sys.executable, "-m", "cli.main", "reproduce", "recipe=one,two", "arms=plain,hot,cold", *CPU]
    command += ["data.workers=0", "--config-dir=recipes"]
    script = cluster.run(*command, "launch.submit=false", cwd=folder)
    jobs = re.findall(r"(\d+)\) set -- cli.reproduce.command recipe=(\w+) arm=(\w+) seed=(\d)", script)
    assert not (folder / "runs" / "one+two-report" / "report.md").exists()
    array, report = re.findall(r"job (\d+)", cluster.run(*command, cwd=folder))
    runs = {f"{array}_{i}": folder / "runs" / f"{recipe}-{arm}" / f"s{seed}" for i, recipe, arm, seed in jobs}
    assert len({*runs.values()}) == 12

    def saved(*nodes: str) -> list[str]:
        """Return the jobs on these nodes whose runs have saved a checkpoint."""
        running = cluster.run("squeue", "--noheader", "--array", "--states=R", "--format=%i", f"-w{','.join(nodes)}")
        return [job for job in running.split() if job in runs and checkpoints(runs[job])]

    wait_for(lambda: saved(NODES[1]), "no checkpoint on the second node", cluster.folder)
    killed = runs[saved(NODES[1])[0]]
    os.kill(process_of(killed), signal.SIGKILL)
    wait_for(lambda: saved(NODES[0]), "no checkpoint on the first node", cluster.folder)
    lost = [runs[job] for job in saved(NODES[0])]
    cluster.run("scontrol", "update", f"nodename={NODES[0]}", "state=down", "reason=test")
    before = len(finished(runs))
    wait_for(lambda: len(finished(runs)) > before, "the other node finishes no run", cluster.folder)
    cluster.run("scontrol", "update", f"nodename={NODES[0]}", "state=resume")

    hurried: set[str] = set()

    def reported() -> bool:
        pending = cluster.run("squeue", "--noheader", "--array", "--states=PD", "--format=%i/%r").split()
        for job in {job.partition("/")[0] for job in pending if job.endswith("/BeginTime")} - hurried:
            cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now+5seconds")  # else it waits for two minutes
            hurried.add(job)
        return cluster.job(report, "JobState") == "COMPLETED"

    wait_for(reported, f"no report of {sorted({*runs.values()} - {*finished(runs)})}", cluster.folder)
    assert len(finished(runs)) == 12
    assert all("resumed from" in (run / "output.log").read_text() for run in (killed, *lost))
    for run in runs.values():
        rows = [(row["dataset"], row["task"], row["split"], row["metric"]) for row in lines(run / "results.jsonl")]
        assert len(rows) == len({*rows}) > 0
    assert cluster.job(report, "Restarts") == "0"
    text = (folder / "runs" / "one+two-report" / "report.md").read_text()
    assert all(name in text for name in ("one-plain", "one-hot", "two-plain", "two-cold"))
    settings = [f"recipe={killed.parent.name[:3]}", f"arm={killed.parent.name[4:]}", f"seed={killed.name[1:]}"]
    alone = [*settings, "name=alone", "data.workers=0", "train.device=cpu", "train.save_every=10"]
    cluster.run(sys.executable, "-m", "cli.main", "train", *alone, "--config-dir=recipes", cwd=folder)
    assert_same_weights(killed, folder / "runs" / "alone" / killed.name)


def finished(runs: dict[str, Path]) -> list[Path]:
    """Return the runs that are trained and evaluated."""
    return [run for run in runs.values() if (run / "timing.json").exists()]


def process_of(run: Path) -> int:
    """Return the process id of a job's `clipx`, whose arguments have recipe, arm and seed of the run."""
    recipe, arm = run.parent.name.split("-")
    wanted = {"cli.reproduce.command", f"recipe={recipe}", f"arm={arm}", f"seed={run.name[1:]}"}
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program, *arguments = file.read_bytes().decode().split("\0")
        except (OSError, ValueError):  # ended
            continue
        if "python" in program and wanted <= {*arguments}:
            found.append(int(file.parent.name))
    return min(found)  # its loader processes are younger


def train(name: str) -> list[str]:
    settings = [*tiny(Path("shards"), samples=8 * STEPS), f"name={name}", "log.every=1", "train.save_every=10"]
    return [sys.executable, "-m", "cli.main", "train", *settings]


def submit(cluster: Cluster, folder: Path, name: str) -> str:
    """Submit a run on two nodes, and return the number of its job."""
    several = ["launch.nodes=2", "train.processes=1", CPU[0], CPU[-1]]
    (number,) = re.findall(r"job (\d+)", cluster.run(*train(name), *several, cwd=folder))
    return str(number)


def log_lines(run: Path) -> int:
    log = run / "log.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def output(folder: Path, number: str) -> str:
    return (folder / "runs" / "slurm" / f"clipx-{number}.out").read_text()


def assert_same_weights(run: Path, other: Path) -> None:
    assert [checkpoints(each)[-1].name for each in (run, other)] == [f"step_{STEPS:08d}"] * 2
    one, two = weights(run), weights(other)
    assert [name for name in one if not torch.equal(one[name], two[name])] == []
