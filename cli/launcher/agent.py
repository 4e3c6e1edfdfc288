"""`python -m cli.launcher.agent ...` runs torch.distributed.run with three changes; `run_worker` runs a worker.

1. After a user error, or after the workers stopped early and saved, the launcher prints no report.
2. Workers are not restarted in these two cases.
3. SIGINT, SIGTERM and SIGUSR1 are passed on to the workers, which save and stop; torch would kill them.

torch has no public setting for the launcher's agent, its restarts or its signals, so this file uses private names.
tests/cli/launcher/test_agent.py lists them, and pyproject.toml gives torch an upper bound.
"""

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous.api import RendezvousError
from torch.distributed.launcher import api
from torch.distributed.run import parse_args, run

from cli.exit_codes import exit_code_of
from clipx.errors import REQUEUE, Fault, UserError
from clipx.training.stop_signals import SIGNALS, handled_signals
from clipx.utils.interrupts import PARENT, end_with_parent

FINAL = (2, REQUEUE)  # exit codes after a user error and an early stop: a restart would end in the same way
HANDLED = handled_signals()  # computed before torch installs its own handlers
GRACE = 3.0  # seconds that other ranks wait, so that rank 0 prints an error common to all ranks first


class Agent(LocalElasticAgent):
    """The parent process of a machine's workers."""

    stopped = False  # True after a signal; a class attribute, because torch creates the only instance

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        started = super()._start_workers(worker_group)  # installs handlers that kill the workers
        for number in SIGNALS:
            signal.signal(number, self._pass_on if number in HANDLED else signal.SIG_IGN)
        if Agent.stopped:  # a signal came while the workers were restarted
            self._pass_on(signal.SIGTERM, None)
        return started  # type: ignore[no-any-return]

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if Agent.stopped or any(failure.exitcode in FINAL for failure in result.failures.values()):
            self._remaining_restarts = 0
        return result

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        Agent.stopped = True
        if number == signal.SIGINT:  # the terminal has sent SIGINT to the workers too; they would count it twice
            number = signal.SIGTERM
        for pid in self._pcontext.pids().values() if self._pcontext else ():
            try:
                os.kill(pid, number)
            except ProcessLookupError:  # already ended
                continue


def run_worker(job: Callable[[], int | None]) -> NoReturn:
    """Run `job` in a worker and exit with the code that it returns; None means 0.

    Rank 0 prints errors common to all ranks. After a failure the process exits at once, without closing the process
    group: NCCL would wait for ranks that wait for this rank. The launcher ends the other workers.
    """
    end_with_parent(int(os.environ[PARENT]))
    codes: list[int | None] = []
    try:
        failed = exit_code_of(lambda: codes.append(_rank0_fails_first(job)))
    except Exception:
        traceback.print_exc()
        failed = 1
    if failed:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(failed)
    sys.exit(codes[0])


def _rank0_fails_first(job: Callable[[], int | None]) -> int | None:
    """Call `job`. Delay all errors except a UserError or Fault of rank 0, which is therefore printed first."""
    try:
        return job()
    except Exception as error:
        if os.environ["RANK"] != "0" or not isinstance(error, UserError | Fault):
            time.sleep(GRACE)
        raise


def main() -> int:
    """Run the launcher. Return 2 or 75 if a worker ended with this code, 75 after a signal, else 0 or 1."""
    end_with_parent(int(os.environ[PARENT]))
    os.environ[PARENT] = str(os.getpid())  # for the workers
    logging.disable(logging.ERROR)  # only in this process; the error printed below says the same
    vars(api)["LocalElasticAgent"] = Agent  # the launcher has no argument for the class
    # otherwise restarted workers find the addresses of dead workers in the launcher's store, and wait for them
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    try:
        run(parse_args(sys.argv[1:]))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        for code in FINAL:
            if code in codes:
                return code
        if Agent.stopped:
            return REQUEUE
        print(error, file=sys.stderr)
        return 1
    except (SignalException, KeyboardInterrupt):  # before workers were started
        return REQUEUE
    except RendezvousError as error:
        print(f"clipx: the machines of launch.nodes could not connect at launch.rendezvous: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
