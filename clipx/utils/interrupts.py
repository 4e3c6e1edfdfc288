"""Let the processes that a command starts ignore Ctrl-C, and end when their parent ends."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PARENT = "CLIPX_PARENT"  # environment variable: the parent's process id, for commands that run_workers starts


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


def end_with_parent(parent: int) -> None:
    """End this process soon after its parent ends; otherwise it could write into a run that was started again.

    `parent`: its process id. os.getppid() would be wrong if the parent ended while this process imported torch.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
