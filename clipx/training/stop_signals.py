"""Early end of a run: Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, or the time limit train.max_minutes."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from clipx import distributed
from clipx.utils.interrupts import handled_signals

TIME_LIMIT = 0.5  # stands for train.max_minutes beside the numbers of signals, which start at 1


class StopMonitor:
    """Context manager that records stop signals, so that a run can save before it ends."""

    def __init__(self, max_minutes: float | None, started: float) -> None:
        """`started`: value of time.monotonic() from which `max_minutes` counts."""
        self.max_minutes = max_minutes
        self.started = started
        self.received: signal.Signals | None = None
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopMonitor":
        if threading.current_thread() is threading.main_thread():  # Python forbids handlers in other threads
            self._previous_handlers = {number: signal.signal(number, self._receive) for number in handled_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def reason(self) -> str:
        """Return why all ranks must stop now, or "" to continue.

        A signal may reach only one rank, and clocks differ, so the ranks agree by an all-reduce of one number.
        """
        late = self.max_minutes is not None and time.monotonic() - self.started >= 60 * self.max_minutes
        code = distributed.all_reduce_max(float(self.received or TIME_LIMIT * late))
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
