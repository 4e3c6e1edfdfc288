"""Matrix products of the objective: inputs are rounded according to `train.loss_precision`, and sums are float32.

    fp32   inputs as they are
    tf32   inputs rounded to a 10-bit mantissa, on GPUs
    bf16   inputs rounded to a 7-bit mantissa

Products of bfloat16 with a float32 result need an operation that torch has on GPUs only. On a CPU the rounded inputs
are multiplied in float32, which gives the same result without saving time. Float64 is never rounded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from clipx.utils.device import tf32

_precision = "fp32"  # not a context variable: on a GPU, backward runs in another thread


@contextmanager
def loss_precision(name: str) -> Iterator[None]:
    """Set the precision of `product` and `add_product_` in the block, a value of train.loss_precision."""
    global _precision
    before, _precision = _precision, name
    try:
        with tf32(name == "tf32"):
            yield
    finally:
        _precision = before


def product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write a @ b to `out`; all three have the same dtype."""
    if _precision == "bf16" and a.is_cuda and a.dtype == torch.float32:
        torch.mm(a.bfloat16(), b.bfloat16(), out_dtype=torch.float32, out=out)
    else:
        torch.mm(rounded(a), rounded(b), out=out)


def add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to `total`; all three have the same dtype."""
    if _precision == "bf16" and a.is_cuda and a.dtype == torch.float32:
        total += torch.mm(a.bfloat16(), b.bfloat16(), out_dtype=torch.float32)
    else:
        total.addmm_(rounded(a), rounded(b))


def dot_products(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b.T [n, m] of a [n, E] and b [m, E]; differentiable once.

    Backward uses the precision set when it runs.
    """
    return _DotProducts.apply(a, b)  # type: ignore[no-any-return]


class _DotProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return _new_product(a, b.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        needs_a, needs_b = ctx.needs_input_grad
        return _new_product(grad, b) if needs_a else None, _new_product(grad.T, a) if needs_b else None


def _new_product(a: Tensor, b: Tensor) -> Tensor:
    out = a.new_empty(len(a), b.shape[1])
    product(a, b, out=out)
    return out


def rounded(x: Tensor) -> Tensor:
    """With bf16, round a float32 tensor to bfloat16 and back; else return the tensor unchanged."""
    return x.bfloat16().float() if _precision == "bf16" and x.dtype == torch.float32 else x
