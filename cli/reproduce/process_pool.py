"""Calls in processes of their own, several at a time: one that is killed takes no other with it.

A pool of several processes would not do: it is broken as a whole when one of them dies, and ends the others.
"""

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context, set_start_method
from queue import SimpleQueue
from threading import Lock
from types import TracebackType
from typing import TypeVar

from clipx.errors import REQUEUE

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass
class WorkerSlot:
    """Where one call after another is done, in one warm process as long as it lives."""

    gpu: str  # CUDA_VISIBLE_DEVICES; "": as it is
    process: ProcessPoolExecutor | None = None  # of one; made at the first call, and after one that was killed

    def submit(self, call: Callable[[Given], Made], given: Given) -> "Future[Made]":
        if self.process is not None:
            try:
                return self.process.submit(call, given)
            except BrokenProcessPool:  # it was killed while it had nothing to do
                self.process.shutdown()
        self.process = ProcessPoolExecutor(1, get_context("spawn"), initializer=_prepare, initargs=(self.gpu,))
        return self.process.submit(call, given)


class Pool:
    """As many calls at a time as there are seats.

    Left by an exception, as that of a signal, it starts no further call and sends the processes SIGTERM, on which a
    run saves; either way it waits for them.
    """

    def __init__(self, seats: list[str]) -> None:
        """`seats`: CUDA_VISIBLE_DEVICES of each."""
        self._threads = ThreadPoolExecutor(len(seats))
        self._seats = [WorkerSlot(gpu) for gpu in seats]
        self._free: SimpleQueue[WorkerSlot] = SimpleQueue()
        for seat in self._seats:
            self._free.put(seat)
        self._starting = Lock()
        self._over = False

    def submit(self, call: Callable[[Given], Made], given: Given) -> "Future[Made]":
        """What it returns or raises; BrokenProcessPool where its process was killed."""
        return self._threads.submit(self._call, call, given)

    def _call(self, call: Callable[[Given], Made], given: Given) -> Made:
        seat = self._free.get()
        try:
            with self._starting:  # else a process could be started when all others have been told to end
                if self._over:
                    raise SystemExit(REQUEUE)
                future = seat.submit(call, given)
            return future.result()
        except BrokenProcessPool:
            assert seat.process is not None
            seat.process.shutdown()
            seat.process = None
            raise
        finally:
            self._free.put(seat)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            with self._starting:
                self._over = True
            for child in active_children():
                child.terminate()
        self._threads.shutdown(cancel_futures=kind is not None)
        for seat in self._seats:
            if seat.process is not None:
                seat.process.shutdown()


def _prepare(gpu: str) -> None:
    """In each process. A spawned one would spawn its loaders, and each of those import torch again."""
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # CUDA reads it at its first use, which is in a call
    set_start_method("fork", force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends this process
