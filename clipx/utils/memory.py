"""Free memory and disk space."""

import os
import shutil
from pathlib import Path

from clipx.errors import UserError

MEMINFO = Path("/proc/meminfo")


def available_memory() -> int:
    """Return the bytes that new data can take without swapping; without Linux's estimate, all memory."""
    for line in MEMINFO.read_text().splitlines() if MEMINFO.is_file() else ():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_room(needed: int, folder: Path, what: str) -> None:
    """Raise UserError if memory, or the disk of `folder`, has less than `needed` bytes; `what` needs them."""
    memory, disk = available_memory(), shutil.disk_usage(folder).free
    if needed > min(memory, disk):
        raise UserError(
            f"{what} needs {needed / 2**20:,.0f} MiB; free are {memory / 2**20:,.0f} MiB of memory, and "
            f"{disk / 2**20:,.0f} MiB on the disk of {folder}"
        )
