"""Ctrl-C and the processes that a command starts."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def children_ignore_ctrl_c() -> Iterator[None]:
    """Let processes that are started in this `with` block ignore Ctrl-C, which a terminal sends to all of them.

    Otherwise each prints a traceback. They must end with their parent, or when it tells them.
    """
    if threading.current_thread() is not threading.main_thread():  # Python forbids handlers in other threads
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
