"""Seconds and memory of calls."""

import time
from collections.abc import Callable
from pathlib import Path

import torch


def seconds(action: Callable[[], object]) -> float:
    """Return the wall seconds of a call, including its work on the GPU, if there is one."""
    start = time.perf_counter()
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def extra_memory(action: Callable[[], object]) -> float:
    """Return the largest resident size of this process during a call minus the size before it, in MiB (Linux).

    Call it in a new process, in which libraries and inputs are loaded.
    """
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    action()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    """Return a field of /proc/self/status in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
