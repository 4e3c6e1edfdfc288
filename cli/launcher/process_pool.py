"""A process pool that continues if one of its processes is killed.

Each slot has a ProcessPoolExecutor of one process, because an executor with several processes ends all
processes if one dies.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, parent_process, set_start_method
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

from clipx.errors import REQUEUE, UserError
from clipx.utils.interrupts import end_with_parent

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass
class WorkerSlot:
    """Runs one call after another in the same process; starts a new process if the process was killed."""

    gpu: str  # CUDA_VISIBLE_DEVICES; "": unchanged
    executor: ProcessPoolExecutor | None = None  # of one process, started by the first call
    processes: set[BaseProcess] = field(default_factory=set)  # the executor's

    def submit(self, call: Callable[[Argument], Result], argument: Argument) -> "Future[Result]":
        if self.executor is not None:
            try:
                return self.executor.submit(call, argument)
            except BrokenProcessPool:  # the process was killed
                self.executor.shutdown()
        others = set(active_children())
        self.executor = ProcessPoolExecutor(1, get_context("spawn"), initializer=_prepare, initargs=(self.gpu,))
        future = self.executor.submit(call, argument)
        self.processes = set(active_children()) - others
        return future


class Pool:
    """Runs one call per slot at a time.

    If the `with` block ends with an exception (for example after a signal), the pool stops: no further call starts and
    the processes get SIGTERM, on which a run saves and stops. The pool always waits for its processes.
    """

    def __init__(self, gpus: list[str]) -> None:
        """`gpus`: CUDA_VISIBLE_DEVICES of each slot."""
        from clipx.utils.device import JOBS  # imports torch

        cores = len(os.sched_getaffinity(0))
        added = {"OMP_NUM_THREADS": str(max(1, cores // len(gpus))), JOBS: str(len(gpus))}
        self._added = {name: value for name, value in added.items() if name not in os.environ}
        os.environ |= self._added  # inherited by the processes
        self._threads = ThreadPoolExecutor(len(gpus))
        self._slots = [WorkerSlot(gpu) for gpu in gpus]
        self._free: SimpleQueue[WorkerSlot] = SimpleQueue()
        for slot in self._slots:
            self._free.put(slot)
        self._starting = Lock()
        self._closed = False

    def submit(
        self, call: Callable[[Argument], Result], argument: Argument, after: "Sequence[Future[Result]]" = ()
    ) -> "Future[Result]":
        """Submit a call, which starts when the earlier calls `after` are done or have failed; return its future.

        The future raises BrokenProcessPool if the process was killed.
        """
        return self._threads.submit(self._call, call, argument, after)

    def _call(
        self, call: Callable[[Argument], Result], argument: Argument, after: "Sequence[Future[Result]]"
    ) -> Result:
        wait(after)
        slot = self._free.get()
        try:
            with self._starting:  # one process starts at a time, and none after SIGTERM was sent
                if self._closed:
                    raise SystemExit(REQUEUE)
                future = slot.submit(call, argument)
            return future.result()
        finally:
            self._free.put(slot)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None:
            with self._starting:
                self._closed = True
            for slot in self._slots:
                for process in slot.processes:
                    process.terminate()
        self._threads.shutdown(cancel_futures=error_type is not None)
        for slot in self._slots:
            if slot.executor is not None:
                slot.executor.shutdown()
        for name in self._added:
            os.environ.pop(name, None)


def append_output_to(file: Path) -> None:
    """Let this process of a pool write its output to the end of a file, so that lines of several runs do not mix."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())


def gpus_of_each_job(jobs: int | None, processes: int) -> list[str]:
    """Return CUDA_VISIBLE_DEVICES of each job; "" (leave it unchanged) for one job, and on the CPU.

    Args:
        jobs: runs at the same time; None: as many as the GPUs allow, one without GPUs.
        processes: the largest number of processes of a run on GPUs; 0 if all runs are on the CPU.

    Raises UserError: `jobs` of 2 or more need more GPUs than this machine has.
    """
    import torch  # slow, and needed only once runs start

    gpus = torch.cuda.device_count() if processes else 0
    most = max(1, gpus // max(1, processes))
    if gpus and jobs is not None and jobs > most:
        each = f", and each run needs {processes}" if processes > 1 else ""
        raise UserError(f"jobs={jobs}, but this machine has {gpus} GPU{'s' * (gpus > 1)}{each}; allowed: 1..{most}")
    jobs = jobs or most
    if jobs == 1 or not gpus:
        return [""] * jobs
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
    return [",".join(visible[processes * job : processes * (job + 1)]) for job in range(jobs)]


def _prepare(gpu: str) -> None:
    """Let a new process end with its parent; set its GPU, start method and signal handling."""
    parent = parent_process()
    assert parent is not None and parent.pid is not None
    end_with_parent(parent.pid)
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # read by CUDA at its first use, inside a call
    set_start_method("fork", force=True)  # spawned loader processes would each import torch again
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
