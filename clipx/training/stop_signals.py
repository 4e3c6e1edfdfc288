"""Early end of a run: Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, or the time limit train.max_minutes."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from clipx import distributed
from clipx.utils.interrupts import handled_signals

EXCHANGE_SECONDS = 0.1  # several ranks exchange signals once in this time, and at most once in a step
TIME_LIMIT = 0.5  # stands for train.max_minutes beside the numbers of signals, which start at 1


class StopMonitor:
    """Context manager that records stop signals, so that a run can save before it ends."""

    def __init__(self, max_minutes: float | None, started: float) -> None:
        """`started`: value of time.monotonic() from which `max_minutes` counts."""
        self.max_minutes = max_minutes
        self.started = started
        self.received: signal.Signals | None = None
        self._last_exchange: tuple[float, int] | None = None  # time and step
        self._next_exchange = 0  # step
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

        A signal may reach only one rank, and clocks differ. Several ranks therefore exchange a code for the reason and
        the seconds of a step. All take the largest of each, so they also agree on the step of the next exchange.
        """
        now = time.monotonic()
        late = self.max_minutes is not None and now - self.started >= 60 * self.max_minutes
        code = float(self.received) if self.received else TIME_LIMIT * late
        if distributed.world_size() > 1:
            if step < self._next_exchange:
                return ""
            # the second exchange is a step after the first
            last_time, last_step = self._last_exchange or (now - EXCHANGE_SECONDS, step - 1)
            code, of_a_step = distributed.max_over_ranks(code, (now - last_time) / (step - last_step))
            self._last_exchange = now, step
            self._next_exchange = step + max(1, int(EXCHANGE_SECONDS / of_a_step))
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
        if self.received != signal.SIGINT:  # Ctrl-C, another signal, Ctrl-C: the last still counts as the second
            self.received = signal.Signals(number)
