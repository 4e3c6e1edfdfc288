"""Start the worker processes of a command by torchrun, and pass signals on to them.

The command calls `run_workers`. This starts `python -m cli.launcher.torchrun`, which runs torchrun's Python function,
torch.distributed.run.main, and this starts the workers, `python -m cli.launcher.worker`.

torchrun kills its workers 30 s after a signal, which may be less than a save takes. So it gets no signal: its process
blocks them all, and the command itself sends them to the workers. Worker processes and the command share a folder. It
has a file for each running worker, named after its process id, and `exit-CODE` files of workers that have ended.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from types import FrameType

from cli.launcher.worker import HANDLED, PARENT, REASON, STOP, WORKERS, final_codes
from clipx.config.schema import LaunchConfig
from clipx.errors import REQUEUE, Fault, UserError, one_line
from clipx.utils.interrupts import SIGNALS, end_with_parent, handled_signals

CPP_LEVEL = "TORCH_CPP_LOG_LEVEL"
ONE_MACHINE = LaunchConfig(max_restarts=0)


def run_workers(
    processes: int,
    module: str,
    arguments: list[str],
    name: str,
    launch: LaunchConfig = ONE_MACHINE,
    saves: bool = True,
) -> None:
    """Call `work(arguments)` of a module in `processes` worker processes on each machine, and wait for them.

    Forwards signals to the workers, Ctrl-C as SIGTERM; a second Ctrl-C kills them. Exits with code 75 if the workers
    stopped early, or failed after a signal.

    Args:
        name: the run, or `eval`; starts the error message, and is the id of the rendezvous.
        saves: the workers save before a signal ends them; False: the first Ctrl-C kills them.

    Raises:
        UserError: a worker ended with code 2.
        Fault: a worker or another machine failed, without a signal before.
        KeyboardInterrupt: Ctrl-C killed the workers.
    """
    options = [f"--nproc-per-node={processes}", f"--max-restarts={launch.max_restarts}"]
    options += _rendezvous_options(launch, name)
    command = [sys.executable, "-m", "cli.launcher.torchrun", *options, "-m", "cli.launcher.worker", module, *arguments]
    received, killed = list[int](), list[int]()

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if number != signal.SIGINT:
            _signal_workers(workers, number)
        elif saves and received.count(number) == 1:
            os.write(2, b"\nclipx: saving and ending after this step; press Ctrl-C again to end at once\n")
            _signal_workers(workers, signal.SIGTERM)
        elif not killed:
            os.write(2, b"\nclipx: stopped\n")
            killed.append(number)
            process.kill()  # the workers end with their parent, without saving

    with TemporaryDirectory(prefix="clipx-workers-") as folder:
        workers = Path(folder)
        with _signals_blocked():  # inherited by the process; a signal of this moment is handled below
            process = _start(command, workers)
            before = {number: signal.signal(number, pass_on) for number in handled_signals()}
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        final, reason = final_codes(workers), workers / REASON
        elsewhere = reason.read_text(encoding="utf-8") if reason.exists() else ""
    if killed:
        raise KeyboardInterrupt
    if REQUEUE in final or (code and received and 2 not in final):
        sys.exit(REQUEUE)
    if elsewhere and 2 not in final:
        raise Fault(f"{name}: {elsewhere}")
    if code:
        kind = UserError if 2 in final else Fault
        raise kind(f"{name}: one of the processes failed; its message is above")


def _start(command: list[str], workers: Path) -> "subprocess.Popen[bytes]":
    handled = ",".join(str(int(number)) for number in handled_signals())
    # PYTHONSAFEPATH: otherwise `-m` searches the working directory first, where a user may have a folder cli/
    own = {"PYTHONSAFEPATH": "1", PARENT: str(os.getpid()), WORKERS: str(workers), HANDLED: handled}
    return subprocess.Popen(command, env={**os.environ, **own})


def _signal_workers(workers: Path, number: int) -> None:
    """Send a signal to the running workers; a worker that starts later sees the file STOP and ends at once."""
    (workers / STOP).touch()
    for file in workers.iterdir():
        if file.name.isdigit():
            with suppress(ProcessLookupError):  # already ended
                os.kill(int(file.name), number)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_rendezvous(launch: LaunchConfig) -> None:
    """Raise UserError if launch.rendezvous is no address at which several machines can meet."""
    host, _, port = (launch.rendezvous or "").rpartition(":")
    if not (host and port.isdigit()):
        raise UserError(
            f"launch.rendezvous={launch.rendezvous} must be HOST:PORT, one of the {launch.nodes} machines and a free "
            "port on it; all machines need the same value"
        )


def _rendezvous_options(launch: LaunchConfig, name: str) -> list[str]:
    """Return torchrun's options that connect the processes: at a free port on one machine, else launch.rendezvous."""
    if launch.nodes == 1:
        return ["--standalone"]
    group = name.replace("/", "_")  # torch names a folder in /tmp after it
    address = ["--rdzv-backend=c10d", f"--rdzv-endpoint={launch.rendezvous}", f"--rdzv-id={group}"]
    return [f"--nnodes={launch.nodes}", *address]


def _end_with_other_machines(joined: Event) -> None:
    """Let torchrun end this machine's workers once another machine has failed for good.

    torchrun alone would restart them, and they would wait half an hour for that machine. The launcher that gives up
    closes the rendezvous. torchrun calls `num_nodes_waiting` ten times a second, so the check is there. After a normal
    end, a launcher waits 300 s for the others before it closes. `joined` is set once workers run on all machines.
    """
    from torch.distributed.elastic.rendezvous import RendezvousClosedError
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    number = DynamicRendezvousHandler.num_nodes_waiting

    def number_unless_closed(handler: DynamicRendezvousHandler) -> int:
        joined.set()
        if handler.is_closed():
            raise RendezvousClosedError
        return number(handler)

    DynamicRendezvousHandler.num_nodes_waiting = number_unless_closed  # type: ignore[assignment, method-assign]


def main() -> int:
    """Run torchrun in this process. It prints its report only if a worker failed for an unknown reason."""
    end_with_parent(int(os.environ[PARENT]))
    os.environ[PARENT] = str(os.getpid())  # for the workers
    logging.disable(logging.ERROR)  # only in this process; the errors below say the same
    # otherwise restarted workers find the addresses of dead workers in the launcher's store, and wait for them
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    quiet = {} if CPP_LEVEL in os.environ else {CPP_LEVEL: "FATAL"}
    os.environ.update(quiet)  # read when torch is imported; a lost rendezvous would print the stack of its C++ code
    from torch.distributed import run

    for name in quiet:
        del os.environ[name]  # workers print all messages
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousError

    joined, workers = Event(), Path(os.environ[WORKERS])
    if "--standalone" not in sys.argv:
        _end_with_other_machines(joined)
    try:
        run.main(sys.argv[1:])
    except ChildFailedError as error:
        if not final_codes(workers):
            print(error, file=sys.stderr)
        return 1
    except RendezvousError as error:
        if joined.is_set() or isinstance(error, RendezvousClosedError):
            reason = "another machine failed or was lost; its output says why"
        else:
            cause = one_line(error.__cause__ or error)
            reason = f"the machines of launch.nodes could not connect at launch.rendezvous: {cause}"
        (workers / REASON).write_text(reason, encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
