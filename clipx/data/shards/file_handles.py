"""Files of a folder kept open for reading, fewer than a process may have."""

import os
from collections import OrderedDict
from pathlib import Path

# As many as blocks are mixed at a time (sampler.MIXED), each perhaps in a shard of its own; a quarter of the usual
# limit of a process, which may read evaluation sets as well.
MOST = 256


class OpenFiles:
    """File descriptors by name; those not used for longest are closed to make room, all of them with the object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: OrderedDict[str, int] = OrderedDict()  # the last used at the end

    def get(self, name: str) -> int:
        """The descriptor of a file, good until the next call. Raises OSError."""
        if name in self._open:
            self._open.move_to_end(name)
        else:
            while len(self._open) >= MOST:
                os.close(self._open.popitem(last=False)[1])
            self._open[name] = os.open(self.folder / name, os.O_RDONLY)
        return self._open[name]

    def __reduce__(self) -> tuple[type["OpenFiles"], tuple[Path]]:
        """File descriptors mean nothing in a loader process that was spawned."""
        return OpenFiles, (self.folder,)

    def __del__(self) -> None:
        for file in self._open.values():
            os.close(file)
