"""Choice of device, precision of the towers, and free memory and disk space for this process."""

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from clipx.errors import UserError
from clipx.utils.registry import one_of

# dtype of autocast; None: float32. tf32 also changes the matrix products and convolutions, see the function `tf32`
PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST_REUSED = 64 * 2**20  # bytes of a tensor; small, because up to version 2.37 glibc may keep eight such blocks
MOST_KEPT = 2**30  # bytes
JOBS = "CLIPX_JOBS"  # environment variable: runs that a pool trains at the same time on this machine
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# settings with which a training step needs less memory
TRAIN_MEMORY_HINT = "train.grad_checkpointing=true, train.precision=bf16 or train.accumulation=2"


def on_host(values: torch.Tensor) -> torch.Tensor:
    """Return a tensor in CPU memory; if it is there already, without an operation of torch."""
    return values if values.is_cpu else values.cpu()


def to_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to the device without waiting for it: a GPU queues copies from pinned memory only."""
    pinned = values.pin_memory() if device.type == "cuda" and values.is_cpu else values
    return pinned.to(device, non_blocking=True)


def loader_processes(workers: int | str) -> int:
    """Return the number of data.workers. With auto: the cores of this rank, less one for training, at least one."""
    return workers if isinstance(workers, int) else max(1, cores_of_rank() - 1)


def cores_of_rank() -> int:
    """Return the number of cores of one rank: all ranks and runs on this machine share its cores equally."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # of this run on this machine, set by torchrun
    return len(os.sched_getaffinity(0)) // (ranks * int(os.environ.get(JOBS, "1")))


def precision_notes(precision: str, device: torch.device) -> list[str]:
    """Return a note for the user if this CPU has no instructions for bf16, so that PyTorch emulates it; else []."""
    if precision != "bf16" or device.type != "cpu" or "bf16" in (PROC / "cpuinfo").read_text():
        return []
    return ["train.precision=bf16 is slow on this CPU, which has no instructions for it; fp32 is faster"]


def kind_of_device(name: str, key: str = "train.device") -> str:
    """Return "cpu" or "cuda" for `auto`, `cpu` or `cuda`; `auto` is CUDA if present. It takes no memory of a GPU.

    `key` is the setting that holds `name`. Raises UserError: an unknown name, or cuda on a machine without a GPU.
    """
    one_of(name, ("auto", "cpu", "cuda"), key)
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{key}=cuda, but PyTorch finds no CUDA device here; allowed: auto, cpu")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def choose_device(name: str, key: str = "train.device") -> torch.device:
    """Return the device of `kind_of_device`. Each rank gets the GPU LOCAL_RANK, on which its process takes memory.

    Raises UserError like `kind_of_device`.
    """
    if kind_of_device(name, key) == "cpu":
        keep_freed_memory()
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True  # search for fast convolutions once: all batches have the same shape
    return device


def keep_freed_memory() -> None:
    """Let this process reuse the memory of freed tensors. Other C libraries than glibc: no effect.

    Otherwise glibc returns the memory to the system, and each step pays for new pages: a step of 32 photographs at
    112 px with small towers takes 1.2 to 1.4 times as long.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_REUSED)
        mallopt(M_TRIM_THRESHOLD, MOST_KEPT)


@contextmanager
def autocast(precision: str, device: torch.device) -> Iterator[None]:
    """Set one of PRECISIONS in the block, for the towers' forward pass.

    The backward pass uses the dtypes of the forward pass, so it needs no autocast. It does need the block `tf32`.
    """
    dtype = PRECISIONS[precision]
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None), tf32(precision == "tf32"):
        yield


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in the block. TF32 rounds inputs of float32 products and convolutions to 10 mantissa bits.

    Both flags are always set, because PyTorch's defaults differ: off for matrix products, on for convolutions.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def missing_compiler(device: torch.device) -> str:
    """Return the compiler that torch.compile looks for on this device and does not find; "" if it is there."""
    if device.type == "cpu":
        name = os.environ.get("CXX", "g++")
        return "" if shutil.which(name) else name
    return "" if os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") else "gcc or clang"


def check_gpus(key: str, processes: int, device: str) -> None:
    """Raise UserError if more processes than GPUs would run on this machine; without GPUs they run on the CPU."""
    gpus = torch.cuda.device_count()
    if device != "cpu" and 0 < gpus < processes:
        raise UserError(
            f"{key}={processes}, but this machine has {gpus} GPUs; allowed: 1..{gpus}, or set the device to cpu"
        )


@contextmanager
def explain_out_of_memory(setting: str, less: str) -> Iterator[None]:
    """Turn an out-of-memory error of the GPU into a UserError: `setting` does not fit, try `less`."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"{setting} does not fit into the memory of the GPU; try {less} ({error})") from error


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
