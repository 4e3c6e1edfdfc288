"""Starts training: in this process, or one process per worker through cli.workers, on one or several machines."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from clipx import runs
from clipx.config import LaunchConfig, RunConfig
from clipx.data.sources import open_source
from clipx.errors import REQUEUE, Fault, UserError
from clipx.stopping import SIGNALS
from clipx.train import fit

HERE = LaunchConfig(max_restarts=0)  # workers of this machine, started once
GRACE = 3.0  # seconds


def train(config: RunConfig) -> None:
    """Trains a run, or resumes it, in its run directory; one that diverged stays as it is.

    Ends the program with exit code 75 where the run was ended early (see `fit`).

    Raises:
        UserError: from the settings, the data or the checkpoints.
    """
    started = time.monotonic()
    run = runs.claim(config)
    if (ended := runs.diverged(run)) is not None:
        print(ended.text(run), file=sys.stderr)
        return
    if config.train.processes == 1 and config.launch.nodes == 1:
        if not fit(config, run, started):
            sys.exit(REQUEUE)
        return
    open_source(config.data)  # what is wrong with the data is said once, here
    run_workers(config.train.processes, "cli.launch", [str(run), str(started)], str(run), config.launch)


def run_workers(processes: int, module: str, arguments: list[str], name: str, launch: LaunchConfig = HERE) -> None:
    """Runs `python -m module arguments` in that many processes of one group on each machine, and waits.

    Ends the program with exit code 75 where the workers did.

    Raises:
        UserError: launch.rendezvous is unusable, or a worker ended with 2; `name` says in what.
        Fault: a worker failed.
    """
    options = [f"--nproc-per-node={processes}", f"--max-restarts={launch.max_restarts}", *_meeting(launch, name)]
    process = subprocess.Popen([sys.executable, "-m", "cli.workers", *options, "-m", module, *arguments])
    stopped = False

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code == REQUEUE or (stopped and code not in (0, 2)):
        sys.exit(REQUEUE)
    if code:
        kind = UserError if code == 2 else Fault
        raise kind(f"{name}: a worker failed; its message stands above")


def _meeting(launch: LaunchConfig, name: str) -> list[str]:
    """How processes find each other: on one machine by a port that is free, else at launch.rendezvous."""
    if launch.nodes == 1:
        return ["--standalone"]
    host, _, port = (launch.rendezvous or "").rpartition(":")
    if not host or not port.isdigit():
        raise UserError(
            f"launch.rendezvous={launch.rendezvous} must be HOST:PORT, one of the {launch.nodes} machines and a port "
            "that is free on it, the same in the command of each"
        )
    return [
        f"--nnodes={launch.nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={launch.rendezvous}",
        f"--rdzv-id={name}",
    ]


def _work(run: Path, started: float) -> int:
    """In a worker: the run directory's config.yaml is all it reads. The exit code."""
    from cli.main import guarded
    from cli.workers import end_with_parent

    end_with_parent()
    over = []
    try:
        code = guarded(lambda: over.append(fit(runs.load_config(run), run, started)))
    except Exception:
        time.sleep(GRACE)  # where another worker's end has ended this one, that one is seen, and heard, first
        raise
    return code or (0 if over == [True] else REQUEUE)


if __name__ == "__main__":
    sys.exit(_work(Path(sys.argv[1]), float(sys.argv[2])))
