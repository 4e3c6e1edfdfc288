"""Where tensors live and in which precision towers compute."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from clipx.errors import UserError
from clipx.utils.registry import one_of

# what autocast computes in; none for float32, whose products and convolutions tf32 rounds
PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str, key: str = "train.device") -> torch.device:
    """`auto` takes CUDA if there is one; each rank of a machine its own device.

    Raises:
        UserError: an unknown name, or cuda on a machine without; `key` is the setting that it is the value of.
    """
    one_of(name, ("auto", "cpu", "cuda"), key)
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{key}=cuda, but PyTorch finds no CUDA device here; allowed: auto, cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True  # batches have one shape, so the search for fast convolutions is done once
    return device


def autocast(precision: str, device: torch.device, key: str = "train.precision") -> AbstractContextManager[None]:
    """The context in which towers run; their backward only needs `tf32` of it.

    Raises:
        UserError: unknown precision, the value of the setting `key`.
    """
    one_of(precision, PRECISIONS, key)
    return _autocast(precision, device)


@contextmanager
def _autocast(precision: str, device: torch.device) -> Iterator[None]:
    dtype = PRECISIONS[precision]
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None), tf32(precision == "tf32"):
        yield


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Whether a GPU may round what goes into float32 products and convolutions to 10 bits, in the block.

    Always said, since PyTorch's own defaults differ: no for products, yes for convolutions.
    """
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = allowed
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


def grad_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """What keeps small gradients from vanishing in fp16; for other precisions one that does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
