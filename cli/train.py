"""Start training: in this process or in one process per worker (cli.launcher.agent), on one or several machines."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import torch

from cli.launcher.gpu_memory import LESS_MEMORY, enough_memory
from clipx.config.schema import LaunchConfig, RunConfig
from clipx.data.sources.opening import open_source
from clipx.errors import REQUEUE, Fault, UserError
from clipx.run import directory
from clipx.train import Outcome, fit
from clipx.training.stop_signals import handled_signals
from evaluation.during_training import build_periodic_evaluator

HERE = LaunchConfig(max_restarts=0)  # workers of this machine, started once


def train(config: RunConfig) -> None:
    """Trains a run, or resumes it, in its run directory; one that diverged stays as it is.

    Ends the program with exit code 75 where the run was ended early (see `fit`).

    Raises:
        UserError: from the settings, the data or the checkpoints.
    """
    started = time.monotonic()
    run = directory.claim(config)
    if (ended := directory.read_divergence(run)) is not None:
        print(ended.message(run), file=sys.stderr)
        return
    if config.train.processes == 1 and config.launch.nodes == 1:
        if code := _fit(config, run, started):
            sys.exit(code)
        return
    check_gpus("train.processes", config.train.processes, config.train.device)
    open_source(config.data)  # what is wrong with the data is said once, here
    build_periodic_evaluator(config)
    run_workers(config.train.processes, "cli.train", [str(run), str(started)], str(run), config.launch)


def check_gpus(key: str, processes: int, device: str) -> None:
    """Raises UserError where several processes of this machine would have to share a GPU."""
    gpus = torch.cuda.device_count()
    if device != "cpu" and 0 < gpus < processes:
        raise UserError(f"{key}={processes}, but this machine has {gpus} GPUs; allowed: 1..{gpus}, or device cpu")


def run_workers(processes: int, module: str, arguments: list[str], name: str, launch: LaunchConfig = HERE) -> None:
    """Runs `python -m module arguments` in that many processes of one group on each machine, and waits.

    Ends the program with exit code 75 where the workers did.

    Raises:
        UserError: launch.rendezvous is unusable, or a worker ended with 2; `name` says in what.
        Fault: a worker failed.
    """
    options = [
        f"--nproc-per-node={processes}",
        f"--max-restarts={launch.max_restarts}",
        *rendezvous_options(launch, name),
    ]
    process = subprocess.Popen([sys.executable, "-m", "cli.launcher.agent", *options, "-m", module, *arguments])
    stopped, interrupts = False, 0

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal stopped, interrupts
        stopped, interrupts = True, interrupts + (number == signal.SIGINT)
        if interrupts > 1:
            process.kill()  # the workers end with it, without saving
        else:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in handled_signals()}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code == REQUEUE or (stopped and code not in (0, 2)):
        sys.exit(REQUEUE)
    if code:
        kind = UserError if code == 2 else Fault
        raise kind(f"{name}: one of the processes failed; its message is above")


def rendezvous_options(launch: LaunchConfig, name: str) -> list[str]:
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


def _fit(config: RunConfig, run: Path, started: float) -> int:
    """Trains in this process; the exit code."""
    share = config.train.batch_size // (config.train.processes * config.launch.nodes)
    with enough_memory(f"train.batch_size={config.train.batch_size}, {share} pairs a GPU,", LESS_MEMORY):
        return REQUEUE if fit(config, run, started, build_periodic_evaluator(config)) is Outcome.STOPPED else 0


if __name__ == "__main__":  # a worker: the run directory's config.yaml is all it reads
    from cli.launcher.agent import work

    its_run = Path(sys.argv[1])
    work(lambda: _fit(directory.load_config(its_run), its_run, float(sys.argv[2])))
