"""Log-sum-exps over the B x B logits z = scale * image @ text.T, exact, without storing z.

The logits are computed in tiles of rows. All log-sum-exps of a term, over rows and over columns, use the same tile.
The backward pass recomputes each tile and turns it into W_ij = dL/dz_ij, which gives

    dL/dimage = scale W text,   dL/dtext = scale W^T image,   dL/dscale = sum_i <image_i, (W text)_i>.

Both directions together need four matrix products (one forward, three backward). The usual implementation stores a
matrix for each direction and needs six. The result does not depend on the tile size.

Several processes share the work: each computes the tiles of its own images against all texts (`Embeddings.part`).
A process then has the complete sums over texts for its own images. Its sums over images, [B] numbers, are combined with
those of the other processes by a maximum and a sum. Every process thus gets the same log-sum-exps, from which a term
computes its loss as on one process. In the backward pass a process has the complete gradient of its own images, and a
share of the gradients of all texts and of the scale; the shares are summed over the processes. The total number of
products is the same as on one process.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from clipx.types import ALL_ROWS, Part
from clipx.utils.matmul import add_product_, product

# bytes per tile: large enough that threads seldom wait for each other, but small compared with B x B logits
TILE_BYTES = {"cpu": 24 << 20, "cuda": 256 << 20}

RowLoss = Callable[..., Tensor]  # (rows, *inputs) -> sum of the loss over these rows
ROW_TENSORS = 8  # tiles that a RowLoss holds at a time (a rough estimate); together they take TILE_BYTES


class Exclude(NamedTuple):
    """Excludes the pairs (i, j) with equal ids (different ids if `equal` is False); without ids, the pairs (i, i)."""

    ids: Tensor | None = None  # int64 [B]
    equal: bool = True

    def __call__(self, tile: Tensor, start: int) -> None:
        """Set the excluded pairs of a tile, whose first row is `start`, to -inf."""
        if self.ids is None:
            tile.diagonal(offset=start).fill_(-torch.inf)
        else:
            compare = torch.eq if self.equal else torch.ne
            tile.masked_fill_(compare(self.ids[start : start + len(tile), None], self.ids), -torch.inf)


class Reduction(NamedTuple):
    """A log-sum-exp over all texts for each image (dim = 1), or over all images for each text (dim = 0).

    `offset` [B] is subtracted from the logits, one number per text for dim = 1, one per image for dim = 0.
    `largest` [B] leaves out pairs with a larger logit, one number per image for dim = 1, one per text for dim = 0.
    """

    dim: int
    exclude: Exclude | None = None
    offset: Tensor | None = None
    largest: Tensor | None = None


EXCLUDE_POSITIVES = Exclude()  # the pairs (i, i)


def positive_logits(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
    """Return the diagonal of the logits, scale * <image_i, text_i>, [B]."""
    return scale * (image * text).sum(dim=1)


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + e^x) to float64 precision. With torch's default threshold the error at x = 20 would be 2e-9."""
    return F.softplus(x, threshold=50)


def logsumexp(
    image: Tensor, text: Tensor, scale: Tensor, reductions: Sequence[Reduction], part: Part = ALL_ROWS
) -> tuple[Tensor, ...]:
    """Compute log sum exp z for each reduction, [B] each; -inf if all pairs are excluded. Differentiable once.

    Args:
        image: [B, E].
        text: [B, E] of the same dtype.
        scale: [] of the same dtype.
        reductions: the sums to compute; no gradient flows into `offset`.
        part: the images that this process computes.
    """
    results: tuple[Tensor, ...] = _LogSumExp.apply(image, text, scale, tuple(reductions), part)
    return results


def tiles(
    image: Tensor, text: Tensor, scale: Tensor, scratch: int = 0, part: Part = ALL_ROWS
) -> Iterator[tuple[int, Tensor]]:
    """Yield for each tile the index of its first row, and a tensor [1 + scratch, rows, B]: logits, then empty buffers.

    All tiles share one memory block, because the allocator would keep several blocks if each tile had its own.
    """
    B = len(text)
    first, end, _ = part.rows.indices(B)
    height = max(1, TILE_BYTES[image.device.type] // max(1, B * image.element_size()))
    buffers = image.new_empty(1 + scratch, min(height, end - first), B)
    for start in range(first, end, height):
        rows = image[start : min(start + height, end)]
        tile = buffers[:, : len(rows)]
        product(rows * scale, text.T, out=tile[0])
        yield start, tile


def sum_over_rows(loss: RowLoss, inputs: Sequence[Tensor], part: Part = ALL_ROWS) -> Tensor:
    """Return the sum [] of `loss(rows, *inputs)` over tiles of rows; differentiable once.

    For losses that are sums over rows of image @ text.T (image to text) and of text @ image.T (text to image), where no
    row needs the result of another row. The gradient of a tile is computed in the forward pass, so that no tile is kept
    for the backward pass. Simpler than `logsumexp`, but both directions together need six matrix products, not four.

    Args:
        loss: gets a slice of rows and `inputs`, and returns the sum [] over these rows, differentiable in `inputs`.
        inputs: the first is [B, ...]; others may be [].
    """
    total: Tensor = _RowSum.apply(loss, part, *inputs)
    return total


class _RowSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: RowLoss, part: Part, *inputs: Tensor) -> Tensor:
        B, first = len(inputs[0]), inputs[0]
        begin, end, _ = part.rows.indices(B)
        height = max(1, TILE_BYTES[first.device.type] // max(1, ROW_TENSORS * B * first.element_size()))
        total, gradients = first.new_zeros(()), [torch.zeros_like(t) for t in inputs]
        for start in range(begin, end, height):
            with torch.enable_grad():
                leaves = [t.detach().requires_grad_() for t in inputs]
                value = loss(slice(start, min(start + height, end)), *leaves)
            found = torch.autograd.grad(value, leaves, materialize_grads=True)
            for gradient, new in zip(gradients, found, strict=True):
                gradient += new
            total += value.detach()
        for k, gradient in enumerate(gradients):
            if gradient.dim():
                part.reduce_scatter_(gradient)  # over the processes; completes only this process's rows
            else:
                gradients[k] = part.sum(gradient)
        ctx.save_for_backward(*gradients)
        return part.sum(total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(grad * saved for saved in ctx.saved_tensors)


class InputGradients:
    """Accumulates the gradients of image, text and scale from tiles of W = dL/dz."""

    def __init__(self, image: Tensor, text: Tensor, scale: Tensor) -> None:
        self.inputs = image, text, scale
        self.image, self.text = torch.zeros_like(image), torch.zeros_like(text)
        self.scale = torch.zeros_like(scale)

    def add(self, start: int, W: Tensor) -> None:
        """Add the gradients from W, the tile whose first row is `start`. Each row must be added exactly once."""
        image, text, scale = self.inputs
        rows = slice(start, start + len(W))
        product(W, text, out=self.image[rows])
        self.scale += (self.image[rows] * image[rows]).sum()
        self.image[rows] *= scale
        add_product_(self.text, W.T, image[rows] * scale)

    def complete(self, part: Part, *totals: Tensor) -> tuple[Tensor, ...]:
        """Sum the gradients of text and scale, and `totals`, over the processes, after the last tile.

        Of image and text, only the gradients of this process's rows are complete afterwards. Returns the sums of
        `totals`.
        """
        self.scale, *sums = part.reduce_scatter_(self.text, self.scale, *totals)
        return tuple(sums)


def log_sums(
    image: Tensor, text: Tensor, scale: Tensor, reductions: Sequence[Reduction], part: Part = ALL_ROWS
) -> Tensor:
    """Compute `logsumexp` without a gradient, [number of reductions, B]."""
    results = image.new_full((len(reductions), len(image)), -torch.inf)
    for start, (z, scratch) in tiles(image, text, scale, scratch=1, part=part):
        rows = slice(start, start + len(z))
        for result, (dim, exclude, offset, largest) in zip(results, reductions, strict=True):
            adjusted = z
            if offset is not None:
                adjusted = torch.sub(z, offset if dim == 1 else offset[rows, None], out=scratch)
            elif exclude is not None or largest is not None:
                adjusted = scratch.copy_(z)
            if exclude is not None:
                exclude(adjusted, start)
            if largest is not None:
                adjusted.masked_fill_(z > (largest[rows, None] if dim == 1 else largest), -torch.inf)
            # clamped, because -inf - (-inf) would be NaN
            peak = adjusted.amax(dim, keepdim=True).clamp_(min=torch.finfo(z.dtype).min)
            total = torch.sub(adjusted, peak, out=scratch).exp_().sum(dim).log_() + peak.squeeze(dim)
            if dim == 1:
                result[rows] = total
            else:
                torch.logaddexp(result, total, out=result)
    # adds up the processes' sums over images; collects the sums over texts, where each process has -inf for the images
    # of the others
    return part.logsumexp(results)


def softmax_gradients(
    inputs: tuple[Tensor, Tensor, Tensor],
    reductions: Sequence[Reduction],
    sums: Tensor,
    weights: Sequence[Tensor],
    part: Part = ALL_ROWS,
    factors: Sequence[Tensor] = (),
) -> tuple[InputGradients, Tensor]:
    """Compute the gradient of sum_k sum_i weights_ki sums_ki; with `factors`, also the sums sum_i factors_ki p_ij.

    An anchor i is an image for dim = 1 and a text for dim = 0; j is on the other side. For each anchor, reduction k has
    the softmax over j, p_ij = exp(z_ij - sums_ki), where z_ij is the logit of i and j after `offset`, `exclude` and
    `largest`.

    Args:
        inputs: image, text, scale.
        sums: result of `log_sums` for the same inputs and K reductions, [K, B].
        weights: [B] for each reduction.
        part: the images that this process computes.
        factors: weights of the anchors in the sums of p_ij, [B] for each reduction; empty: no such sums.

    Returns the gradients, and sum_i factors_ki p_ij for each j, [K, B]. Without factors, the sums are 0.
    """
    # finite, so that a row or column without any pair gives exp(-inf) = 0
    sums = sums.clamp(min=torch.finfo(sums.dtype).min)
    gradients, totals = InputGradients(*inputs), torch.zeros_like(sums)
    for start, (z, softmax, W) in tiles(*inputs, scratch=2, part=part):
        rows = slice(start, start + len(z))
        W.zero_()
        for k, (dim, exclude, offset, largest) in enumerate(reductions):
            anchors, summed = ((rows, None), slice(None)) if dim == 1 else (slice(None), (rows, None))
            torch.sub(z, sums[k][anchors], out=softmax)
            if offset is not None:
                softmax.sub_(offset[summed])
            if exclude is not None:
                exclude(softmax, start)
            if largest is not None:
                softmax.masked_fill_(z > largest[anchors], -torch.inf)
            W.addcmul_(softmax.exp_(), weights[k][anchors])
            if factors and dim == 1:
                totals[k].addmv_(softmax.T, factors[k][rows])
            elif factors:
                torch.mv(softmax, factors[k], out=totals[k, rows])
        gradients.add(start, W)
    if factors:
        (totals,) = gradients.complete(part, totals)
    else:
        gradients.complete(part)
    return gradients, totals


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, image: Tensor, text: Tensor, scale: Tensor, reductions: tuple[Reduction, ...], part: Part
    ) -> tuple[Tensor, ...]:
        results = log_sums(image, text, scale, reductions, part)
        ctx.save_for_backward(image, text, scale, results)
        ctx.reductions, ctx.part = reductions, part
        return tuple(results.unbind())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, results = ctx.saved_tensors
        gradients, _ = softmax_gradients(tuple(inputs), ctx.reductions, results, grads, ctx.part)
        return gradients.image, gradients.text, gradients.scale, None, None
