"""Locks that keep two commands from writing the same files: on one machine, between machines and over NFS.

The lock is filelock's SoftFileLease: a file that its owner, a process, creates exclusively and refreshes in a thread.
If the owner was killed on this machine, the next process takes the lock at once. An owner on another machine counts as
dead after STALE seconds without a refresh. The waiting process measures this time, so the machines' clocks may differ.
`hold` also writes a second file for messages: the owner's process, machine and SLURM job, and when it took the lock.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from filelock import SoftFileLease, Timeout

from clipx.errors import UserError, printable_line
from clipx.utils.files import write_text
from clipx.utils.trust import load_json

BEAT = 5.0  # seconds between two refreshes of a lock file
STALE = 60.0  # seconds without a refresh after which an owner on another machine counts as dead


@contextmanager
def hold(path: Path, doing: str, instead: str) -> Iterator[None]:
    """Hold the lock `path` in a `with` block. Take over the lock of a dead owner, and print a line.

    If this process loses the lock, because it was suspended or the folder was removed, it ends at once with code 1.

    Args:
        doing: beginning of messages, such as `runs/a/s0 is being trained`.
        instead: advice to the user if another process holds the lock.

    Raises UserError: another process holds the lock; the message says which one, on which machine and since when.
    """
    lease, owner = _lease(path, doing), path.with_name(f"{path.name}.owner")
    with ExitStack() as at_the_end:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _acquire(lease, owner, doing, instead)
            at_the_end.callback(lease.release)
            if dead := _read(owner):
                _say(f"{doing} by {_name(dead)}, which is dead: taking over")
            now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            job = os.environ.get("SLURM_JOB_ID", "")
            own = {"pid": os.getpid(), "host": socket.gethostname(), "machine": _machine(), "job": job, "since": now}
            write_text(owner, json.dumps(own) + "\n")
        except OSError as error:
            raise UserError(f"{path.parent} cannot be written: {error.strerror}") from error
        at_the_end.callback(owner.unlink, missing_ok=True)  # before the lease is released
        yield


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Hold the lock `path` in a `with` block; wait while another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lease(path, f"{path.parent} was being written"):
        yield


def _lease(path: Path, doing: str) -> SoftFileLease:
    def end(reason: object) -> NoReturn:
        _say(f"{doing} by this process, but it lost its lock {path}: ending without saving")
        os._exit(1)

    return SoftFileLease(
        path, lease_duration=STALE, heartbeat_interval=BEAT, on_compromise=end, thread_local=False, poll_interval=0.02
    )


def _acquire(lease: SoftFileLease, owner: Path, doing: str, instead: str) -> None:
    """Take the lease, at once or after its owner has not refreshed it for STALE seconds; else raise UserError."""
    path = Path(lease.lock_file)
    seen, start, warned = _signs_of_life(path), time.monotonic(), False
    while not _try_to_take(lease):
        holder = _read(owner)
        # if the owner's process on this machine were dead, `_try_to_take` would have taken the lease
        if holder.get("machine") == _machine() or _signs_of_life(path) not in (None, seen):
            raise UserError(f"{doing} by {_name(holder)}: {instead}")
        if not warned and time.monotonic() - start > 2 * BEAT:
            wait = f"waiting {STALE:.0f} s before taking over"
            _say(f"{doing} by {_name(holder)}, which does not refresh its lock: {wait}")
            warned = True
        time.sleep(0.2)


def _try_to_take(lease: SoftFileLease) -> bool:
    for _ in range(2):  # the first try may only remove the lock of a dead process
        with suppress(Timeout):
            lease.acquire(timeout=0)
            return True
    return False


def _signs_of_life(path: Path) -> tuple[int, int] | None:
    """Return inode and modification time of the lock file; None if there is no file.

    A refresh changes the time, a new owner the inode. The file is opened, because only then does NFS ask the server for
    both.
    """
    try:
        with path.open() as file:
            state = os.fstat(file.fileno())
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


def _machine() -> str:
    """Return host name and namespace of process ids: containers may share the host name, but not the processes."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{socket.gethostname()} {namespace}"


def _read(owner: Path) -> dict[str, Any]:
    """Return the owner; {} if it is not written yet, a moment after the lock was taken."""
    try:
        found = load_json(owner.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _name(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    job = f" (SLURM job {holder['job']})" if holder.get("job") else ""
    return f"process {holder.get('pid')} on {holder.get('host')}{job} since {holder.get('since')}"


def _say(line: str) -> None:
    print(f"clipx: {printable_line(line)}", file=sys.stderr, flush=True)
