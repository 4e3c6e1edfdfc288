"""Start the worker processes of a command, and check that there are enough GPUs for them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from clipx.config.schema import LaunchConfig
from clipx.errors import REQUEUE, Fault, UserError
from clipx.training.stop_signals import handled_signals
from clipx.utils.interrupts import PARENT, children_ignore_ctrl_c

ONE_MACHINE = LaunchConfig(max_restarts=0)
# settings with which a training step needs less memory
TRAIN_MEMORY_HINT = "train.grad_checkpointing=true, train.precision=bf16 or train.accumulation=2"


def run_workers(
    processes: int,
    module: str,
    arguments: list[str],
    name: str,
    launch: LaunchConfig = ONE_MACHINE,
    saves: bool = True,
) -> None:
    """Run `python -m module arguments` in `processes` worker processes on each machine, and wait for them.

    Forwards SIGTERM and SIGUSR1 to the workers, and Ctrl-C as SIGTERM; a second Ctrl-C kills them. Exits with code 75
    if the workers stopped early, or failed after a signal.

    Args:
        name: the run, or `eval`; starts the error message, and is the id of the rendezvous.
        saves: the workers save before a signal ends them; False: the first Ctrl-C kills them.

    Raises:
        UserError: launch.rendezvous is invalid, or a worker ended with code 2.
        Fault: a worker failed, without a signal before.
        KeyboardInterrupt: Ctrl-C killed the workers.
    """
    options = [f"--nproc-per-node={processes}", f"--max-restarts={launch.max_restarts}"]
    options += _rendezvous_options(launch, name)
    command = [sys.executable, "-m", "cli.launcher.agent", *options, "-m", module, *arguments]
    received, killed = list[int](), list[int]()

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if number != signal.SIGINT:
            process.send_signal(number)
        elif saves and received.count(number) == 1:
            os.write(2, b"\nclipx: saving and ending after this step; press Ctrl-C again to end at once\n")
            process.terminate()
        elif not killed:
            os.write(2, b"\nclipx: stopped\n")
            killed.append(number)
            process.kill()  # the workers end with their parent, without saving

    handled = handled_signals()
    # PYTHONSAFEPATH: otherwise `-m` searches the working directory first, where a user may have a folder cli/
    with children_ignore_ctrl_c():
        process = subprocess.Popen(command, env={**os.environ, "PYTHONSAFEPATH": "1", PARENT: str(os.getpid())})
    before = {number: signal.signal(number, pass_on) for number in handled}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if killed:
        raise KeyboardInterrupt
    if code == REQUEUE or (received and code not in (0, 2)):
        sys.exit(REQUEUE)
    if code:
        kind = UserError if code == 2 else Fault
        raise kind(f"{name}: one of the processes failed; its message is above")


def _rendezvous_options(launch: LaunchConfig, name: str) -> list[str]:
    """Return torchrun's options that connect the processes: at a free port on one machine, else launch.rendezvous."""
    if launch.nodes == 1:
        return ["--standalone"]
    host, _, port = (launch.rendezvous or "").rpartition(":")
    if not host or not port.isdigit():
        raise UserError(
            f"launch.rendezvous={launch.rendezvous} must be HOST:PORT, one of the {launch.nodes} machines and a free "
            "port on it; all machines need the same value"
        )
    group = name.replace("/", "_")  # torch names a folder in /tmp after it
    address = ["--rdzv-backend=c10d", f"--rdzv-endpoint={launch.rendezvous}", f"--rdzv-id={group}"]
    return [f"--nnodes={launch.nodes}", *address]


def check_gpus(key: str, processes: int, device: str) -> None:
    """Raise UserError if more processes than GPUs would run on this machine; without GPUs they run on the CPU."""
    gpus = torch.cuda.device_count()
    if device != "cpu" and 0 < gpus < processes:
        raise UserError(
            f"{key}={processes}, but this machine has {gpus} GPUs; allowed: 1..{gpus}, or set the device to cpu"
        )


@contextmanager
def explain_out_of_memory(setting: str, less: str) -> Iterator[None]:
    """Turn an out-of-memory error of the GPU into a UserError: `setting` does not fit, try `less`."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"{setting} does not fit into the memory of the GPU; try {less} ({error})") from error
