"""Sums over the B x B logits z = scale * image @ text.T, exact, without ever storing them whole.

The logits are computed in tiles of rows, once for all sums of a term: log-sum-exps over rows and over columns come
from the same tile. The backward computes each tile again and turns it into the weights W_ij = dL/dz_ij, from which

    dL/dimage = scale W text,   dL/dtext = scale W^T image,   dL/dscale = sum_i <image_i, (W text)_i>.

That is four matrix products for both directions together (one forward, three backward), where the usual way of two
stored matrices takes six. The result does not depend on the size of the tiles.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# of one tile: few enough of them that threads seldom wait for each other, small beside B x B
TILE_BYTES = {"cpu": 24 << 20, "cuda": 256 << 20}

# adds constants to the logits of a tile in place, -inf to what is left out; also given: the tile's first row
Adjust = Callable[[Tensor, int], None]


class Sum(NamedTuple):
    """A log-sum-exp over the texts for each image (dim = 1), or over the images for each text (dim = 0)."""

    dim: int
    adjust: Adjust | None = None


def off_diagonal(tile: Tensor, start: int) -> None:
    """Leaves pairs (i, i) out."""
    tile.diagonal(offset=start).fill_(-torch.inf)


def own_logits(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
    """The diagonal [B] of the logits."""
    return scale * (image * text).sum(dim=1)


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x) to the last digit of float64: torch's own takes x itself from 20 on, which is 2e-9 off."""
    return F.softplus(x, threshold=50)


def logsumexp(image: Tensor, text: Tensor, scale: Tensor, sums: Sequence[Sum]) -> tuple[Tensor, ...]:
    """log sum exp z for each of `sums`, [B] each; -inf where all is left out. Differentiable once.

    Args:
        image: [B, E].
        text: [B, E] of the same dtype.
        scale: [] of the same dtype.
        sums: which ones; no gradient flows into what their `adjust` adds.
    """
    results: tuple[Tensor, ...] = _LogSumExp.apply(image, text, scale, tuple(sums))
    return results


def tiles(image: Tensor, text: Tensor, scale: Tensor, spare: int = 0) -> Iterator[tuple[int, Tensor]]:
    """First row and [1 + spare, rows, B] of each tile: the logits, and as many tiles of scratch.

    The next tile takes the same memory. New memory for each would be kept by the allocator, several times over.
    """
    B = len(text)
    height = max(1, TILE_BYTES[image.device.type] // max(1, B * image.element_size()))
    buffers = image.new_empty(1 + spare, min(height, len(image)), B)
    for start in range(0, len(image), height):
        rows = image[start : start + height]
        tile = buffers[:, : len(rows)]
        torch.mm(rows * scale, text.T, out=tile[0])
        yield start, tile


class Gradients:
    """Gradients of image, text and scale from tiles of weights W = dL/dz."""

    def __init__(self, image: Tensor, text: Tensor, scale: Tensor) -> None:
        self.given = image, text, scale
        self.image, self.text = torch.empty_like(image), torch.zeros_like(text)
        self.scale = torch.zeros_like(scale)

    def add(self, start: int, W: Tensor) -> None:
        """Takes the rows `start ... start + len(W)`; each row exactly once."""
        image, text, scale = self.given
        rows = slice(start, start + len(W))
        torch.mm(W, text, out=self.image[rows])
        self.scale += (self.image[rows] * image[rows]).sum()
        self.image[rows] *= scale
        self.text.addmm_(W.T, image[rows] * scale)


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, image: Tensor, text: Tensor, scale: Tensor, sums: tuple[Sum, ...]) -> tuple[Tensor, ...]:
        results = [image.new_full((len(image),), -torch.inf) for _ in sums]
        for start, (z, spare) in tiles(image, text, scale, spare=1):
            rows = slice(start, start + len(z))
            for result, (dim, adjust) in zip(results, sums, strict=True):
                part = z
                if adjust is not None:
                    part = spare.copy_(z)
                    adjust(part, start)
                largest = part.amax(dim, keepdim=True).clamp_(min=torch.finfo(z.dtype).min)  # z - largest is no NaN
                total = torch.sub(part, largest, out=spare).exp_().sum(dim).log_() + largest.squeeze(dim)
                if dim == 1:
                    result[rows] = total
                else:
                    torch.logaddexp(result, total, out=result)
        ctx.save_for_backward(image, text, scale, *results)
        ctx.sums = sums
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        image, text, scale, *results = ctx.saved_tensors
        # finite, so that a row or column of which all is left out gives exp(-inf) = 0
        results = [result.clamp(min=torch.finfo(result.dtype).min) for result in results]
        gradients = Gradients(image, text, scale)
        for start, (z, share, W) in tiles(image, text, scale, spare=2):
            rows = slice(start, start + len(z))
            W.zero_()
            for result, grad, (dim, adjust) in zip(results, grads, ctx.sums, strict=True):
                total, weight = (result[rows, None], grad[rows, None]) if dim == 1 else (result, grad)
                torch.sub(z, total, out=share)
                if adjust is not None:
                    adjust(share, start)
                W.addcmul_(share.exp_(), weight)
            gradients.add(start, W)
        return gradients.image, gradients.text, gradients.scale, None
