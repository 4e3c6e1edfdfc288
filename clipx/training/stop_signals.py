"""Early end of a run: Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, or the time limit train.max_minutes."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from clipx import distributed
from clipx.utils.interrupts import handled_signals

BETWEEN = 0.1  # seconds between two exchanges of signals, at least one step
TIME_LIMIT = 0.5  # stands for train.max_minutes beside the numbers of signals, which start at 1


class StopMonitor:
    """Context manager that records stop signals, so that a run can save before it ends."""

    def __init__(self, max_minutes: float | None, started: float) -> None:
        """`started`: value of time.monotonic() from which `max_minutes` counts."""
        self.max_minutes = max_minutes
        self.started = started
        self.received: signal.Signals | None = None
        self._asked: tuple[float, int] | None = None  # time and step at which the ranks last agreed
        self._next = 0  # first step at which they do so again
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopMonitor":
        if threading.current_thread() is threading.main_thread():  # Python forbids handlers in other threads
            self._previous_handlers = {number: signal.signal(number, self._receive) for number in handled_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def reason(self, step: int) -> str:
        """Return why all ranks must stop after this step, or "" to continue.

        A signal may reach only one rank, and clocks differ. Several ranks therefore take the maximum of two numbers: a
        code for the reason, and the seconds of a step, from which follows when they ask again.
        """
        now = time.monotonic()
        late = self.max_minutes is not None and now - self.started >= 60 * self.max_minutes
        code = float(self.received or TIME_LIMIT * late)
        if distributed.world_size() > 1:
            if step < self._next:
                return ""
            before, first = self._asked or (now - BETWEEN, step - 1)  # not known yet: ask again after the next step
            code, of_a_step = distributed.max_over_ranks(code, (now - before) / (step - first))
            self._asked, self._next = (now, step), step + max(1, int(BETWEEN / of_a_step))
        if code > TIME_LIMIT:
            return signal.Signals(int(code)).name
        return f"train.max_minutes={self.max_minutes:g}" if code and self.max_minutes else ""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.received == signal.SIGINT:  # the user does not want to wait for the save
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # a third Ctrl-C ends the process without cleanup
                if distributed.rank() == 0:
                    os.write(2, b"\nclipx: stopped\n")
                raise KeyboardInterrupt
            if distributed.rank() == 0:  # os.write, because the signal may have interrupted a print
                os.write(2, b"\nclipx: saving and ending after this step; press Ctrl-C again to end at once\n")
        self.received = signal.Signals(number)
