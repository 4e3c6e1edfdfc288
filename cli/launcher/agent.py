"""`python -m cli.launcher.agent ...`: torch.distributed.run with three differences, and `work`, which runs a worker.

It says nothing more where a worker has said what is wrong. Workers that ended for good (by the user's mistake, or
saved and stopped early) are not started again. SIGINT, SIGTERM and SIGUSR1 are passed on to the workers, which save,
and do not end them.

The agent uses private names of torch: torch's launcher has no public setting for the agent, and the agent none for
restarts or signals. Therefore pyproject.toml gives torch an upper bound; tests/cli/test_workers.py lists the names.
"""

import logging
import os
import signal
import sys
import threading
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

FINAL = (2, REQUEUE)  # exit codes that a restart would only repeat
HEARD = handled_signals()  # before torch handles signals in its own way
GRACE = 3.0  # seconds


class Agent(LocalElasticAgent):
    """The parent of a machine's workers."""

    stopped = False  # by a signal; of the class, as there is one agent and torch makes it

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        started = super()._start_workers(worker_group)  # whose own handlers kill the workers
        for number in SIGNALS:
            signal.signal(number, self._pass_on if number in HEARD else signal.SIG_IGN)
        if Agent.stopped:  # between two groups of workers
            self._pass_on(signal.SIGTERM, None)
        return started  # type: ignore[no-any-return]

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if Agent.stopped or any(failure.exitcode in FINAL for failure in result.failures.values()):
            self._remaining_restarts = 0
        return result

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        Agent.stopped = True
        if number == signal.SIGINT:  # comes twice, from the terminal and from run_workers: not to be counted
            number = signal.SIGTERM
        for pid in self._pcontext.pids().values() if self._pcontext else ():
            try:
                os.kill(pid, number)
            except ProcessLookupError:  # it has ended meanwhile
                continue


def end_with_parent() -> None:
    """Ends this process soon after its parent, also where that was killed: two runs must not share a directory."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def work(job: Callable[[], int]) -> NoReturn:
    """A worker's whole life: `job` returns its exit code. A mistake that all ranks find is said by rank 0.

    After a failure the process group is not taken down and neither is the interpreter: NCCL would wait for ranks that
    wait for this one. The others are ended by the launcher.
    """
    end_with_parent()
    codes: list[int] = []
    try:
        failed = exit_code_of(lambda: codes.append(_in_turn(job)))
    except Exception:
        traceback.print_exc()
        failed = 1
    if failed:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(failed)
    sys.exit(codes[0])


def _in_turn(job: Callable[[], int]) -> int:
    """Fails after a while: another worker's failure, of which this one is a copy or a consequence, is heard first."""
    try:
        return job()
    except Exception as error:
        if os.environ["RANK"] != "0" or not isinstance(error, UserError | Fault):
            time.sleep(GRACE)
        raise


def main() -> int:
    """The exit code: 2 or 75 where a worker ended so, 75 after a signal; else, after the launcher's report, 1."""
    end_with_parent()
    logging.disable(logging.ERROR)  # in this process only; what it would log is in the report
    vars(api)["LocalElasticAgent"] = Agent  # the launcher has no argument for it
    # else groups started again find the addresses of dead workers in the launcher's store, and wait for them
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
    except (SignalException, KeyboardInterrupt):  # before there were workers
        return REQUEUE
    except RendezvousError as error:
        print(f"clipx: the machines of launch.nodes did not meet at launch.rendezvous: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
