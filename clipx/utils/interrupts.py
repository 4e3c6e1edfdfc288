"""Ctrl-C and the processes that a command starts."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def children_ignore_ctrl_c() -> Iterator[None]:
    """Make processes that are started in this `with` block ignore Ctrl-C.

    A terminal sends Ctrl-C to all processes, and each would print a traceback. The parent must end these processes.
    """
    if threading.current_thread() is not threading.main_thread():  # Python forbids handlers in other threads
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
