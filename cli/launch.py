"""Starts training: in this process, or one process per worker through torch.distributed.run."""

import subprocess
import sys
from pathlib import Path

from clipx import runs
from clipx.config import RunConfig
from clipx.data.sources import open_source
from clipx.errors import UserError
from clipx.train import fit


def train(config: RunConfig) -> None:
    """Trains a run, or resumes it, in its run directory.

    Raises:
        UserError: from the settings, the data or the checkpoints.
    """
    run = runs.claim(config)
    if config.train.processes == 1:
        fit(config, run)
        return
    open_source(config.data)  # what is wrong with the data is said once, here
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={config.train.processes}", "-m", "cli.launch", str(run)]
    if subprocess.run(command, check=False).returncode:
        raise UserError(f"{run}: a worker failed; its message stands above")


if __name__ == "__main__":  # a worker: the run directory's config.yaml is all it reads
    from cli.main import guarded

    worker_run = Path(sys.argv[1])
    sys.exit(guarded(lambda: fit(runs.load_config(worker_run), worker_run)))
