"""What a forward pass changes in a model beside its result: running statistics of batch norms."""

from collections.abc import Callable

import torch
from torch import nn


def remember(model: nn.Module) -> Callable[[], None]:
    """What puts all buffers back to what they are now."""
    now = [(buffer, buffer.clone()) for buffer in model.buffers()]

    @torch.no_grad()
    def put_back() -> None:
        for buffer, value in now:
            buffer.copy_(value)

    return put_back
