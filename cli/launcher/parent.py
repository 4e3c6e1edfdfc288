"""Processes that end with their parent."""

import os
import threading
import time

PARENT = "CLIPX_PARENT"  # environment variable: the parent's process id, for commands that run_workers starts


def end_with_parent(parent: int) -> None:
    """End this process soon after its parent; otherwise it could still write into a run that was started again.

    Args:
        parent: its process id. os.getppid() would be wrong if the parent ended while this process imported torch.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
