"""A pool of worker processes for tests and benchmarks on several ranks (backend gloo)."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

R = TypeVar("R")


class Gloo:
    """Four processes. `run` makes the first `world` of them the ranks of a process group.

    A process has the same rank in all groups, because torch's caches for sharded tensors keep the rank of a mesh.
    They are copies of this process, which has imported all that they need, except where CUDA or macOS forbids this.
    """

    def __init__(self) -> None:
        copied = sys.platform == "linux" and not torch.cuda.is_available()
        context = get_context("fork" if copied else "forkserver")
        context.set_forkserver_preload(["torch", "clipx.train"])  # imported once for all processes
        self.processes = [ProcessPoolExecutor(1, context) for _ in range(4)]

    def run(self, world: int, function: Callable[..., R], *arguments: Any) -> list[R]:
        """Call `function(*arguments)` on each rank of a new group of `world` <= 4 ranks; return the results by rank."""
        with tempfile.TemporaryDirectory() as folder:
            store = str(Path(folder) / "store")
            futures = [
                process.submit(_as_rank, rank, world, store, function, arguments)
                for rank, process in enumerate(self.processes[:world])
            ]
            return [future.result(timeout=300) for future in futures]


def _as_rank(rank: int, world: int, store: str, function: Callable[..., R], arguments: tuple[Any, ...]) -> R:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        return function(*arguments)
    finally:
        dist.destroy_process_group()


@contextmanager
def pool() -> Iterator[Gloo]:
    """Start a pool and stop it at the end of the block."""
    gloo = Gloo()
    try:
        yield gloo
    finally:
        for process in gloo.processes:
            process.shutdown(cancel_futures=True)
