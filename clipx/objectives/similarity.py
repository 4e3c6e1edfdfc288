"""Log-sum-exps over the B x B logits z = scale * image @ text.T, exact, without storing z.

The logits are computed in tiles of rows. All log-sum-exps of a term, over rows and over columns, use the same tile.
The backward pass recomputes each tile and turns it into W_ij = dL/dz_ij, which gives

    dL/dimage = scale W text,   dL/dtext = scale W^T image,   dL/dscale = sum_i <image_i, (W text)_i>.

Both directions together need four matrix products (one forward, three backward). The usual way, with a stored matrix
for each direction, needs six. The result does not depend on the tile size.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# bytes per tile: large enough that threads seldom wait for each other, but small compared with B x B logits
TILE_BYTES = {"cpu": 24 << 20, "cuda": 256 << 20}

# (tile, index of its first row): adds constants to the logits in place; -inf excludes a pair
Adjust = Callable[[Tensor, int], None]


class Reduction(NamedTuple):
    """A log-sum-exp over the texts of each image (dim = 1) or over the images of each text (dim = 0)."""

    dim: int
    adjust: Adjust | None = None


def exclude_positives(tile: Tensor, start: int) -> None:
    """Exclude the pairs (i, i)."""
    tile.diagonal(offset=start).fill_(-torch.inf)


def positive_logits(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
    """Return the diagonal of the logits, scale * <image_i, text_i>, [B]."""
    return scale * (image * text).sum(dim=1)


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + e^x) to float64 precision. torch's default threshold returns x above 20, an error of 2e-9."""
    return F.softplus(x, threshold=50)


def logsumexp(image: Tensor, text: Tensor, scale: Tensor, reductions: Sequence[Reduction]) -> tuple[Tensor, ...]:
    """Compute log sum exp z for each reduction, [B] each; -inf if all pairs are excluded. Differentiable once.

    Args:
        image: [B, E].
        text: [B, E] of the same dtype.
        scale: [] of the same dtype.
        reductions: the sums to compute; no gradient flows into the constants that `adjust` adds.
    """
    results: tuple[Tensor, ...] = _LogSumExp.apply(image, text, scale, tuple(reductions))
    return results


def tiles(image: Tensor, text: Tensor, scale: Tensor, scratch: int = 0) -> Iterator[tuple[int, Tensor]]:
    """Yield the index of the first row and [1 + scratch, rows, B] for each tile: its logits and `scratch` buffers.

    All tiles share one memory block. The allocator would keep several blocks if each tile had its own.
    """
    B = len(text)
    height = max(1, TILE_BYTES[image.device.type] // max(1, B * image.element_size()))
    buffers = image.new_empty(1 + scratch, min(height, len(image)), B)
    for start in range(0, len(image), height):
        rows = image[start : start + height]
        tile = buffers[:, : len(rows)]
        torch.mm(rows * scale, text.T, out=tile[0])
        yield start, tile


class InputGradients:
    """Accumulates the gradients of image, text and scale from tiles of W = dL/dz."""

    def __init__(self, image: Tensor, text: Tensor, scale: Tensor) -> None:
        self.inputs = image, text, scale
        self.image, self.text = torch.empty_like(image), torch.zeros_like(text)
        self.scale = torch.zeros_like(scale)

    def add(self, start: int, W: Tensor) -> None:
        """Add the rows `start ... start + len(W)`. Each row must be added exactly once."""
        image, text, scale = self.inputs
        rows = slice(start, start + len(W))
        torch.mm(W, text, out=self.image[rows])
        self.scale += (self.image[rows] * image[rows]).sum()
        self.image[rows] *= scale
        self.text.addmm_(W.T, image[rows] * scale)


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, image: Tensor, text: Tensor, scale: Tensor, reductions: tuple[Reduction, ...]
    ) -> tuple[Tensor, ...]:
        results = [image.new_full((len(image),), -torch.inf) for _ in reductions]
        for start, (z, scratch) in tiles(image, text, scale, scratch=1):
            rows = slice(start, start + len(z))
            for result, (dim, adjust) in zip(results, reductions, strict=True):
                adjusted = z
                if adjust is not None:
                    adjusted = scratch.copy_(z)
                    adjust(adjusted, start)
                # clamped, because -inf - (-inf) would be NaN
                largest = adjusted.amax(dim, keepdim=True).clamp_(min=torch.finfo(z.dtype).min)
                total = torch.sub(adjusted, largest, out=scratch).exp_().sum(dim).log_() + largest.squeeze(dim)
                if dim == 1:
                    result[rows] = total
                else:
                    torch.logaddexp(result, total, out=result)
        ctx.save_for_backward(image, text, scale, *results)
        ctx.reductions = reductions
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        image, text, scale, *results = ctx.saved_tensors
        # finite, so that a row or column without any pair gives exp(-inf) = 0
        results = [result.clamp(min=torch.finfo(result.dtype).min) for result in results]
        gradients = InputGradients(image, text, scale)
        for start, (z, softmax, W) in tiles(image, text, scale, scratch=2):
            rows = slice(start, start + len(z))
            W.zero_()
            for result, grad, (dim, adjust) in zip(results, grads, ctx.reductions, strict=True):
                total, weight = (result[rows, None], grad[rows, None]) if dim == 1 else (result, grad)
                torch.sub(z, total, out=softmax)
                if adjust is not None:
                    adjust(softmax, start)
                W.addcmul_(softmax.exp_(), weight)
            gradients.add(start, W)
        return gradients.image, gradients.text, gradients.scale, None
