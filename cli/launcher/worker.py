"""A worker process: `python -m cli.launcher.worker MODULE ARGUMENT...` calls MODULE.work(arguments)."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from cli.exit_codes import exit_code_of
from clipx.errors import REQUEUE, Fault, UserError
from clipx.utils.interrupts import SIGNALS, end_with_parent

# Environment variables
PARENT = "CLIPX_PARENT"  # process id of the parent
WORKERS = "CLIPX_WORKERS"  # the folder that the workers of a command on this machine share
HANDLED = "CLIPX_SIGNALS"  # numbers of the signals that the command does not ignore

REASON = "reason"  # file in the folder WORKERS: why torchrun failed, if no worker of this machine did
STOP = "stop"  # file in the folder WORKERS: the command has received a signal
FINAL = (2, REQUEUE)  # exit codes after which torchrun's restart must not call the module again: user error, early stop
GRACE = 3.0  # seconds by which an error is delayed, so that rank 0 prints one that all ranks have first, and ends them


def final_codes(workers: Path) -> list[int]:
    """Return the FINAL codes with which workers have ended."""
    return [code for code in FINAL if (workers / f"exit-{code}").exists()]


def main() -> NoReturn:
    """Run a worker. torchrun sees exit code 0 if the worker stopped early and saved, so that it kills no other worker.

    Rank 0 prints a UserError or Fault that all ranks have. After a failure the process exits at once, and does not
    close the process group: NCCL would wait for ranks that wait for this one. torchrun ends the other workers.
    """
    workers = Path(os.environ[WORKERS])
    module, *arguments = sys.argv[1:]
    if earlier := final_codes(workers):  # torchrun restarts the workers after any failure
        sys.exit(earlier[0])
    end_with_parent(int(os.environ[PARENT]))
    mine = workers / str(os.getpid())  # the command signals the processes whose ids are here
    mine.touch()
    _take_signals()
    code = REQUEUE if (workers / STOP).exists() else _call(module, arguments)
    mine.unlink(missing_ok=True)
    if code in FINAL:
        (workers / f"exit-{code}").touch()
    sys.stdout.flush()
    sys.stderr.flush()
    if code not in (0, REQUEUE):
        os._exit(code)
    sys.exit(0)


def _take_signals() -> None:
    """Unblock the signals that torchrun's process blocks. Ctrl-C is left to the command, which sends SIGTERM."""
    handled = {int(number) for number in os.environ[HANDLED].split(",") if number} - {signal.SIGINT}
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL if number in handled else signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _call(module: str, arguments: list[str]) -> int:
    """Call `work` of a module and return the exit code: what `work` returns (None means 0), or that of its error."""
    codes: list[int | None] = []
    try:
        failed = exit_code_of(lambda: codes.append(_rank0_fails_first(lambda: import_module(module).work(arguments))))
    except Exception:
        traceback.print_exc()
        return 1
    return failed or codes[0] or 0


def _rank0_fails_first(job: Callable[[], int | None]) -> int | None:
    """Call `job`. Delay all errors except a UserError or Fault of rank 0, which is therefore printed first."""
    try:
        return job()
    except Exception as error:
        if os.environ["RANK"] != "0" or not isinstance(error, UserError | Fault):
            time.sleep(GRACE)
        raise


if __name__ == "__main__":
    main()
