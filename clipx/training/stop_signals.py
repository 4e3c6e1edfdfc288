"""When a run ends before its last step: on Ctrl-C, SIGTERM and SIGUSR1, and after train.max_minutes."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from clipx import distributed

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def heard() -> list[signal.Signals]:
    """The SIGNALS that this process does not ignore.

    A shell starts `command &` with SIGINT ignored, and that stays so.
    """
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


class Stop:
    """Remembers signals instead of dying of them, while it is entered; `why` asks at the end of each step."""

    def __init__(self, max_minutes: float | None, started: float) -> None:
        """Args: `started`: time.monotonic() at which train.max_minutes began."""
        self.limit = max_minutes
        self.started = started
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():  # no other may handle signals
            self._before = {number: signal.signal(number, self._receive) for number in heard()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def why(self) -> str:
        """Why all ranks stop now; "" where they go on.

        A signal may reach one of the ranks only, and clocks differ, so they agree in a reduction of one number.
        """
        late = self.limit is not None and time.monotonic() - self.started >= 60 * self.limit
        code = distributed.all_reduce_max(float(self.received or late))  # a signal's number, or 1
        if code > 1:
            return signal.Signals(int(code)).name
        return f"train.max_minutes={self.limit:g}" if code and self.limit else ""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.received == signal.SIGINT:  # a person who does not want to wait for the save
                raise KeyboardInterrupt
            if distributed.rank() == 0:  # by os.write: the signal may have come in the middle of a print
                os.write(2, b"\nclipx: saves and ends as soon as a step is done; Ctrl-C again ends at once\n")
        self.received = signal.Signals(number)
