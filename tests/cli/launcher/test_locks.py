"""Two commands on one folder: the second is refused in one line, or waits until the first has finished."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clipx.utils.lock import hold
from tests.helpers.commands import RECIPE, clipx, clipx_here, tiny, write_recipe
from tests.helpers.folder import write_shards
from tests.helpers.runs import lines, log


def begin(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    """Start a command in the background, without its output."""
    command = [sys.executable, "-m", "cli.main", *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.guards_data
@pytest.mark.long
def test_a_run_has_one_trainer_and_a_killed_one_is_replaced(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards" / "train", samples=64)
    command = ["train", *tiny(tmp_path / "shards", samples=320), "train.save_every=5", "log.every=1", "name=two"]
    run = tmp_path / "runs" / "two" / "s0"
    first = begin(*command, cwd=tmp_path)
    deadline = time.monotonic() + 180
    while not list(run.glob("checkpoints/step_*")):
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGSTOP)  # it stays alive until the second command has started
    before = (run / "log.jsonl").read_bytes()

    second = clipx(*command, cwd=tmp_path, code=2)
    (line,) = second.stderr.splitlines()
    assert line.startswith(f"clipx: runs/two/s0 is being trained by process {first.pid} on ")
    clipx("eval", "checkpoint=runs/two/s0", f"datasets=[captions:{tmp_path}/shards/train]", cwd=tmp_path)
    assert (run / "log.jsonl").read_bytes() == before

    first.kill()
    first.wait()
    third = clipx(*command, cwd=tmp_path)
    assert [line for line in third.stderr.splitlines() if "taking over" in line]
    steps = [row["step"] for row in log(run)]
    assert steps == sorted(set(steps)) and steps[-1] == 40
    assert not list(run.glob("*.lock*"))


@pytest.mark.guards_data
@pytest.mark.long
def test_two_evaluations_into_one_folder_keep_the_rows_of_both(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shards(tmp_path / name, samples=16)
    arguments = ["eval", "model=open_clip:mini-48/random", "workers=0", "out=both"]
    both = [begin(*arguments, f"datasets=[captions:{tmp_path}/{name}]", cwd=tmp_path) for name in ("a", "b")]
    assert [process.wait() for process in both] == [0, 0]
    rows = lines(tmp_path / "both" / "results.jsonl")
    assert {row["dataset"] for row in rows} == {"a", "b"}
    table = (tmp_path / "both" / "results.csv").read_text()
    assert table.count("\n") == 1 + len(rows)


def test_an_experiment_has_one_reproducer(tmp_path: Path) -> None:
    """A killed one is replaced: tests/clipx/utils/test_lock.py."""
    write_recipe(tmp_path, "two", RECIPE)
    with hold(tmp_path / "runs/two-report/reproduce.lock", "", ""):
        done = clipx_here("reproduce", "recipe=two", "seeds=1", "--config-dir=recipes", cwd=tmp_path, code=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("clipx: the experiment of runs/two-report is being reproduced by process ")
    assert not [*tmp_path.glob("runs/two-*/s0")]
