"""Signals of a command and its processes: which ones stop it, and who ends with its parent."""

import os
import signal
import threading
import time

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)  # a training run saves and stops


def handled_signals() -> list[signal.Signals]:
    """Return the SIGNALS that this process does not ignore: a shell script starts `command &` with SIGINT ignored."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def end_with_parent(parent: int) -> None:
    """End this process soon after its parent ends; otherwise it could write into a run that was started again.

    `parent`: its process id. os.getppid() would be wrong if the parent ended while this process imported torch.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
