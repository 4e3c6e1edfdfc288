"""Jobs on SLURM: signals, requeued jobs, a lost node and a sweep. Run by `make test-slurm`.

The commands are those of docs/scaling.md, for two nodes without GPUs, and with a tiny recipe.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from clipx.run.checkpoint import checkpoints
from tests.helpers.commands import tiny
from tests.helpers.folder import write_shards
from tests.helpers.ports import free_ports
from tests.slurm.cluster import INSTALLED, NODES, Cluster, running_cluster, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.long]
TEXT = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
STEPS = 120  # enough that a run does not end before a signal that is sent at its first step
SIZES = {  # in docs/scaling.md -> in these tests
    r"--nodes=8": "--nodes=2",
    r" --gpus-per-node=8| hydra.launcher.gpus_per_node=8": "",
    r"cpus(.)per.task=96": r"cpus\1per\1task=2",
    r"timeout_min=1440": "timeout_min=10",  # submitit takes any signal in a job's last ten minutes as the time limit
    r"train.processes=8 data.workers=8": "train.processes=1",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not INSTALLED.exists():
        pytest.skip("`make test-slurm` unpacks SLURM and runs this test")
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a working folder with data and .venv."""
    folder = tmp_path_factory.mktemp("work")
    write_shards(folder / "shards" / "train", samples=64)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def test_a_run_stopped_by_the_time_limit_is_requeued_and_ends_with_the_weights_of_an_uninterrupted_run(
    cluster: Cluster, folder: Path
) -> None:
    number = cluster.submit(job_script("stopped"), folder)
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
    cluster.run(sys.executable, "-m", "cli.main", "train", *settings("whole"), "train.processes=2", cwd=folder)
    whole, stopped = weights(folder / "runs" / "whole" / "s0"), weights(run)
    assert [name for name in whole if not torch.equal(whole[name], stopped[name])] == []


def test_a_run_that_loses_the_node_of_rank_0_ends_on_the_other_node(cluster: Cluster, folder: Path) -> None:
    number = cluster.submit(job_script("lost"), folder)
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


def test_a_sweep_of_two_runs_finishes_although_one_job_reached_its_time_limit(cluster: Cluster, folder: Path) -> None:
    (command,) = re.findall(r"clipx train -m (?:.*\\\n)*.*submitit_slurm(?:.*\\\n)*.*(?= &\n)", TEXT)
    command = adapted(command, r"recipe=\S+ arm=\S+ seed=\S+ data.root=\S+", [*settings("sweep"), "seed=0,1"])
    runs = [folder / "runs" / "sweep" / f"s{seed}" for seed in (0, 1)]
    with started(f"source .venv/bin/activate; {command}", folder, cluster.environment) as sweep:
        wait_for(lambda: log_lines(runs[0]) or sweep.poll(), "the sweep's first run has no step", cluster.folder)
        first = min(cluster.run("squeue", "--noheader", "--array", "--format=%i").split())
        cluster.run("scancel", "--signal=USR2", first)  # submitit's signal for a time limit
        cluster.start_requeued(first)
        assert sweep.wait() == 0
    assert [checkpoints(run)[-1].name for run in runs] == [f"step_{STEPS:08d}"] * 2
    assert cluster.job(first, "Restarts") == "1"


@contextmanager
def started(script: str, folder: Path, environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a shell script; end its processes at the end."""
    process = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def job_script(name: str) -> str:
    """Return the job script of docs/scaling.md for two nodes, a tiny run and a free port."""
    (script,) = re.findall(r"```\n(#!/bin/bash\n#SBATCH.*?)```", TEXT, re.DOTALL)
    script = script.replace(":29400", f":{free_ports(1)[0]}")
    return adapted(script, r"recipe=\S+ arm=\S+ data.root=\S+", settings(name))


def adapted(text: str, pattern: str, settings: list[str]) -> str:
    """Replace the settings that `pattern` matches, and the sizes."""
    text, count = re.subn(pattern, " ".join(settings), text)
    assert count == 1
    for page, here in SIZES.items():
        text = re.sub(page, here, text)
    assert "gpus" not in text and "=8" not in text.replace("batch_size=8", "")
    return text


def settings(name: str) -> list[str]:
    return [*tiny(Path("shards"), samples=8 * STEPS), f"name={name}", "log.every=1", "train.save_every=10"]


def log_lines(run: Path) -> int:
    log = run / "log.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def output(folder: Path, number: str) -> str:
    return (folder / f"slurm-{number}.out").read_text()


def weights(run: Path) -> dict[str, Tensor]:
    last = checkpoints(run)[-1]
    assert last.name == f"step_{STEPS:08d}"
    return load_file(last / "model.safetensors")
