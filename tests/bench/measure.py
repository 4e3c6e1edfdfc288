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


def extra_memory(action: Callable[[], object], device: str = "cpu") -> float:
    """Return by how many MiB the memory rises at most during a call: of a GPU, or of this process (Linux).

    Call it in a new process, in which libraries and inputs are loaded.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        action()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    resident = _status("VmRSS")
    action()
    return (_status("VmHWM") - resident) / 1024


def _status(field: str) -> int:
    """Return a field of /proc/self/status in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
