"""A GPU's rounding to TF32, on a CPU."""

import torch
from torch import Tensor


def ten_bits(x: Tensor) -> Tensor:
    """Round float32 to the 10-bit mantissa of TF32, as a GPU does."""
    return (
        x if x.dtype == torch.float64 else ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    )
