"""On a CPU, memory of freed tensors stays with the process."""

import platform
import resource
from multiprocessing import get_context

import pytest
import torch

from clipx.utils.device import choose_device

SIZE = 40 * 2**20  # bytes of a tensor
PAGES = SIZE // resource.getpagesize()


def new_pages(device: str) -> int:
    """Return the number of memory pages that the system gives this process for ten tensors, one after another."""
    if device:
        choose_device(device)
    for _ in range(20):  # up to version 2.37, glibc takes new memory a few times
        torch.ones(SIZE, dtype=torch.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(SIZE, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_new_tensor_takes_the_memory_of_a_freed_one() -> None:
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:  # the setting holds for the rest of a process
        without, on_cpu = pool.map(new_pages, ["", "cpu"], chunksize=1)
    assert without >= 10 * PAGES
    assert on_cpu < PAGES
