"""Starts training: in this process, or one process per worker through cli.workers."""

import subprocess
import sys
from pathlib import Path

from clipx import runs
from clipx.config import RunConfig
from clipx.data.sources import open_source
from clipx.errors import UserError
from clipx.train import fit


def train(config: RunConfig) -> None:
    """Trains a run, or resumes it, in its run directory; one that diverged stays as it is.

    Raises:
        UserError: from the settings, the data or the checkpoints.
    """
    run = runs.claim(config)
    if (ended := runs.diverged(run)) is not None:
        print(ended.text(run), file=sys.stderr)
        return
    if config.train.processes == 1:
        fit(config, run)
        return
    open_source(config.data)  # what is wrong with the data is said once, here
    run_workers(config.train.processes, "cli.launch", str(run), str(run))


def run_workers(processes: int, module: str, argument: str, name: str) -> None:
    """Runs `python -m module argument` in that many processes of one group, and waits.

    Raises:
        UserError: a worker failed; `name` says in what.
    """
    command = [sys.executable, "-m", "cli.workers", "--standalone"]
    command += [f"--nproc-per-node={processes}", "-m", module, argument]
    if subprocess.run(command, check=False).returncode:
        raise UserError(f"{name}: a worker failed; its message stands above")


if __name__ == "__main__":  # a worker: the run directory's config.yaml is all it reads
    from cli.main import guarded

    worker_run = Path(sys.argv[1])
    sys.exit(guarded(lambda: fit(runs.load_config(worker_run), worker_run)))
