"""Where tensors live and in which precision towers compute."""

import torch

from clipx.errors import UserError
from clipx.tables import lookup

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose(name: str) -> torch.device:
    """`auto` takes CUDA if there is one; each rank of a machine its own device.

    Raises:
        UserError: an unknown name, or cuda on a machine without.
    """
    import os

    lookup({"auto": 0, "cpu": 0, "cuda": 0}, name, "device")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda, but PyTorch finds no CUDA device here; allowed: auto, cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context in which towers run.

    Raises:
        UserError: unknown precision.
    """
    dtype = lookup(PRECISIONS, precision, "train.precision")
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def grad_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """What keeps small gradients from vanishing in fp16; for other precisions one that does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
