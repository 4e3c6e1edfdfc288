"""Free memory and disk space for this process."""

import shutil
from pathlib import Path

import torch

from clipx.errors import UserError

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that are free for this process on a device; None if unknown.

    On a CPU: the machine's available memory, or less if a cgroup (the limit of a container or of SLURM) allows less.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = [free for free in (_free_on_machine(), *_free_in_cgroups()) if free is not None]
    return min(found) if found else None


def check_room(needed: int, folder: Path, what: str) -> None:
    """Raise UserError if memory or the disk of `folder` has less than `needed` bytes free; the message names `what`."""
    memory, disk = free_memory(torch.device("cpu")), shutil.disk_usage(folder).free
    if needed > (disk if memory is None else min(memory, disk)):
        free = "" if memory is None else f"{memory / 2**20:,.0f} MiB of memory, and "
        free += f"{disk / 2**20:,.0f} MiB on the disk of {folder}"
        raise UserError(f"{what} needs {needed / 2**20:,.0f} MiB, but only {free} are free")


def _free_on_machine() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in (PROC / "meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None


def _free_in_cgroups() -> list[int]:
    """Return the bytes that are free in this process's cgroup and in each cgroup above it (cgroups v1 and v2)."""
    free = []
    try:
        entries = [line.split(":", 2) for line in (PROC / "self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    for _, controllers, path in entries:
        if controllers and "memory" not in controllers.split(","):
            continue
        root = CGROUPS / "memory" if controllers else CGROUPS
        limit, used = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        )
        folder = root / path.lstrip("/")
        for level in (folder, *folder.parents):
            if level.is_relative_to(root) and (free_here := _free_in_cgroup(level, limit, used)) is not None:
                free.append(free_here)
    return free


def _free_in_cgroup(folder: Path, limit: str, used: str) -> int | None:
    """Return limit - usage + file cache: the cache counts as usage, but the system frees it when needed."""
    try:
        of_files = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        cache = int(of_files.get("inactive_file", 0))
        return int((folder / limit).read_text()) - int((folder / used).read_text()) + cache
    except (OSError, ValueError):  # without a limit, the file contains the word max
        return None
