"""Choice of device, and precision of the towers."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import torch

from clipx.errors import UserError
from clipx.utils.registry import one_of

# dtype of autocast; None: float32. tf32 also changes the matrix products and convolutions, see the function `tf32`
PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str, key: str = "train.device") -> torch.device:
    """Return the device for `auto`, `cpu` or `cuda`; `auto` is CUDA if present. Each rank gets the GPU LOCAL_RANK.

    `key` is the setting that holds `name`. Raises UserError: an unknown name, or cuda on a machine without a GPU.
    """
    one_of(name, ("auto", "cpu", "cuda"), key)
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{key}=cuda, but PyTorch finds no CUDA device here; allowed: auto, cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True  # search for fast convolutions once: all batches have the same shape
    return device


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


@cache
def can_use_triton(device: torch.device) -> bool:
    """Return True for an NVIDIA GPU of compute capability 8.0 or later, with triton and the C compiler it needs."""
    if device.type != "cuda" or torch.version.cuda is None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    return not missing_compiler(device) and find_spec("triton") is not None


def missing_compiler(device: torch.device) -> str:
    """Return the compiler that torch.compile and triton look for on this device and do not find; "" if it is there."""
    if device.type == "cpu":
        name = os.environ.get("CXX", "g++")
        return "" if shutil.which(name) else name
    return "" if os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") else "gcc or clang"
