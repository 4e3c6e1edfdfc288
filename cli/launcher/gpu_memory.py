"""A GPU that is too small is the settings' fault, not a crash."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from clipx.errors import UserError

LESS_MEMORY = "train.grad_checkpointing=true, train.precision=bf16 or train.accumulation=2"  # of a training step


@contextmanager
def enough_memory(what: str, less: str) -> Iterator[None]:
    """
    Args:
        what: the setting that asks for the memory.
        less: settings that ask for less.

    Raises:
        UserError: the GPU has no more memory.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"{what} does not fit into the memory of the GPU; try {less} ({error})") from error
