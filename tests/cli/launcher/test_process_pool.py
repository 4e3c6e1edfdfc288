"""A killed process fails only its own call; a stopped pool waits until its processes have saved."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from pathlib import Path

import pytest

from cli.launcher.process_pool import Pool

STOPPED = """
import signal, sys, time
from pathlib import Path
from cli.launcher.process_pool import Pool

def saved(name):
    received = []
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    Path(f"{name}.started").touch()
    while not received:
        time.sleep(0.01)
    time.sleep(0.3)
    Path(f"{name}.saved").touch()
    sys.exit(75)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(75))
    with Pool(["", ""]) as pool:
        for future in [pool.submit(saved, name) for name in "abc"]:
            future.result()
"""


def pid_and_gpu(killed: bool) -> tuple[int, str]:
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)  # so that both slots are busy
    return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES", "")


def test_a_killed_process_fails_only_its_own_call() -> None:
    with Pool(["0", "1"]) as pool:
        calls = [pool.submit(pid_and_gpu, number == 1) for number in range(6)]
        with pytest.raises(BrokenProcessPool):
            calls[1].result()
        found = [calls[number].result() for number in (0, 2, 3, 4, 5)]
    gpus = {gpu for _, gpu in found}
    assert gpus <= {"0", "1"} and len(set(found)) == len(gpus)  # a slot keeps its process from call to call


def test_the_processes_of_a_pool_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    from clipx.utils.device import loader_processes  # here, because the processes above import this file: torch is slow

    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(16))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert loader_processes("auto") == 15
    with Pool([""] * 4):
        assert loader_processes("auto") == 3 and os.environ["OMP_NUM_THREADS"] == "4"
    assert loader_processes("auto") == 15 and "OMP_NUM_THREADS" not in os.environ


def test_a_stopped_pool_ends_its_own_processes_only() -> None:
    other = get_context("spawn").Process(target=time.sleep, args=(60,))
    other.start()
    with pytest.raises(KeyError), Pool([""]) as pool:
        running = pool.submit(time.sleep, 60)
        while not running.running() or len(active_children()) < 2:
            time.sleep(0.05)
        raise KeyError
    assert other.is_alive()
    other.kill()
    other.join()


@pytest.mark.guards_data
@pytest.mark.long
def test_a_stopped_pool_ends_when_its_processes_have_saved_and_starts_no_further_call(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STOPPED)
    with subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path) as program:
        while len(list(tmp_path.glob("*.started"))) < 2 and program.poll() is None:
            time.sleep(0.05)
        program.terminate()
        assert program.wait() == 75
    assert sorted(path.name for path in tmp_path.glob("*.*ed")) == ["a.saved", "a.started", "b.saved", "b.started"]
