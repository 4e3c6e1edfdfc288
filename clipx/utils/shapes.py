"""Checks of tensors that users pass to the library: type, dtype and shape, in one sentence."""

import torch
from torch import Tensor

from clipx.errors import UserError

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Shapes:
    """Checks tensors that share sizes, such as image [B, E] and text [B, E]: a name has one size in all of them."""

    def __init__(self) -> None:
        self.sizes: dict[str, tuple[int, str]] = {}  # name of a size -> its value, and the tensor that had it first

    def check(self, name: str, value: object, dims: str, integer: bool = False) -> None:
        """Raise UserError unless `value` is a tensor with the right kind of numbers and the right shape.

        `dims` has the name or the number of each dimension: "B E" for [B, E], "P 2 2", or "" for a tensor without
        dimensions.
        """
        if not isinstance(value, Tensor):
            kind = type(value)
            raise UserError(f"{name} must be a torch.Tensor, not {kind.__name__}")
        if value.is_floating_point() == integer or (integer and value.dtype not in INTEGERS):
            wanted = "whole numbers (int64)" if integer else "floating-point numbers"
            raise UserError(f"{name} must hold {wanted}, not {str(value.dtype).removeprefix('torch.')}")
        expected, known = dims.split(), []
        right = value.dim() == len(expected)
        for size, dim in zip(value.shape, expected, strict=False):
            length, first = (int(dim), "") if dim.isdecimal() else self.sizes.setdefault(dim, (int(size), name))
            right = right and size == length
            if first not in ("", name):
                known.append(f"{dim}={length} as in {first}")
        if not right:
            reason = f" with {', '.join(known)}" if known else ""
            raise UserError(f"{name} has the shape {list(value.shape)}; expected: [{', '.join(expected)}]{reason}")
