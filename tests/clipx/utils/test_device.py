"""On a CPU, memory of freed tensors stays with the process; too few GPUs and too little memory are user errors."""

import platform
import resource
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from clipx.errors import UserError
from clipx.utils import device as devices
from clipx.utils.device import check_gpus, choose_device, explain_out_of_memory

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


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_new_tensor_takes_the_memory_of_a_freed_one() -> None:
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:  # the setting holds for the rest of a process
        without, on_cpu = pool.map(new_pages, ["", "cpu"], chunksize=1)
    assert without >= 10 * PAGES
    assert on_cpu < PAGES


@pytest.mark.parametrize(("device", "processes", "refused"), [("auto", 3, True), ("auto", 2, False), ("cpu", 3, False)])
def test_more_processes_than_gpus_are_refused(
    device: str, processes: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    message = r"train.processes=3, but this machine has 2 GPUs; allowed: 1..2, or set the device to cpu"
    with pytest.raises(UserError, match=message) if refused else nullcontext():
        check_gpus("train.processes", processes, device)


def test_an_out_of_memory_error_becomes_a_user_error_that_names_smaller_settings() -> None:
    message = "batch_size=8 does not fit into the memory of the GPU; try bf16"
    with pytest.raises(UserError, match=message), explain_out_of_memory("batch_size=8", "bf16"):
        raise torch.OutOfMemoryError("out of memory")


@pytest.mark.parametrize(
    ("flags", "precision", "noted"), [("avx2", "bf16", True), ("amx_bf16", "bf16", False), ("avx2", "fp32", False)]
)
def test_a_cpu_that_emulates_bf16_is_noted(
    flags: str, precision: str, noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
    monkeypatch.setattr(devices, "PROC", tmp_path)
    assert bool(devices.precision_notes(precision, torch.device("cpu"))) == noted
