"""Only one process holds a lock. A dead owner's lock is taken over; a lock that its owner refreshes is not.

The tests cover owners on this machine and on another one.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clipx.errors import UserError
from clipx.utils import lock

OWNER = """
import socket, sys, time
from pathlib import Path
host, path = sys.argv[1], Path(sys.argv[2])
if host:
    socket.gethostname = lambda: host
from clipx.utils import lock
lock.BEAT, lock.STALE = 0.2, 2.0
with lock.hold(path, "a is being trained", "stop it"):
    print("held", flush=True)
    time.sleep(60)
"""
COUNTER = """
import sys
from pathlib import Path
from clipx.utils.lock import turn
file = Path(sys.argv[1])
for _ in range(25):
    with turn(file.with_name("turn.lock")):
        file.write_text(str(int(file.read_text()) + 1))
"""
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT", 0.2)
    monkeypatch.setattr(lock, "STALE", 2.0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that holds tmp_path/run/train.lock on the given host; "" is this host."""
    started = []

    def begin(host: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", OWNER, host, str(tmp_path / "run" / "train.lock")]
        owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(owner)
        assert owner.stdout and owner.stdout.readline() == "held\n"
        return owner

    yield begin
    for owner in started:
        owner.kill()
        owner.communicate()


def take(folder: Path) -> None:
    with lock.hold(folder / "run" / "train.lock", "a is being trained", "stop it"):
        assert sorted(path.name for path in (folder / "run").iterdir()) == ["train.lock", "train.lock.owner"]
    assert not list((folder / "run").iterdir()), "the lock was not released"


@pytest.mark.parametrize("host", ["", "node7"])
def test_a_living_owner_is_named_on_any_machine(
    host: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "55")
    owner = start(host)
    where = host or os.uname().nodename
    message = rf"^a is being trained by process {owner.pid} on {where} \(SLURM job 55\) since 20\d\d-.* UTC: stop it$"
    with pytest.raises(UserError, match=message):
        take(tmp_path)
    assert capsys.readouterr().err == "", "hold waited although the owner is alive"


@pytest.mark.parametrize("host", ["", "node7"])
def test_a_killed_owner_is_replaced_at_once_and_on_another_machine_after_stale_seconds(
    host: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = start(host)
    owner.kill()
    owner.wait()
    before = time.monotonic()
    if not host:
        monkeypatch.setattr("time.sleep", None)  # a wait would fail
    take(tmp_path)
    *waiting, taken = capsys.readouterr().err.splitlines()
    assert taken.startswith(f"clipx: a is being trained by process {owner.pid} on ")
    assert taken.endswith(", which is dead: taking over")
    if host:
        assert time.monotonic() - before >= lock.STALE
        assert "does not refresh its lock: waiting 2 s before taking over" in waiting[0]
    assert len(waiting) == bool(host)


def test_an_owner_that_lost_its_lock_ends_at_once(start: Start, tmp_path: Path) -> None:
    """After a long suspension, another machine may have taken the lock."""
    owner = start("")
    (tmp_path / "run" / "train.lock").unlink()
    assert owner.wait(timeout=10) == 1
    assert owner.stderr and "by this process, but it lost its lock" in owner.stderr.read()


def test_a_failed_owner_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), lock.hold(tmp_path / "run" / "train.lock", "a is being trained", "stop it"):
        raise KeyboardInterrupt
    take(tmp_path)


def test_two_processes_that_change_a_file_in_turn_lose_no_change(tmp_path: Path) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    both = [subprocess.Popen([sys.executable, "-c", COUNTER, str(count)]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert count.read_text() == "50"


def test_a_forked_child_does_not_release_the_lock(tmp_path: Path) -> None:
    """Loader processes are forked while the lock is held."""
    path = tmp_path / "run" / "train.lock"
    with lock.hold(path, "a is being trained", "stop it"):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.5)
        assert path.exists()
