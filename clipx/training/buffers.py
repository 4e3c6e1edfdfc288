"""Snapshot of a model's buffers: the running statistics of batch norms, which a forward pass changes."""

from collections.abc import Callable

import torch
from torch import nn


def remember(model: nn.Module) -> Callable[[], None]:
    """Takes a snapshot of all buffers and returns a function that restores them."""
    now = [(buffer, buffer.clone()) for buffer in model.buffers()]

    @torch.no_grad()
    def put_back() -> None:
        for buffer, value in now:
            buffer.copy_(value)

    return put_back
