"""SigLIP: a sigmoid loss for every pair (Zhai et al. 2023, algorithm 1; a baseline of paper 3).

    L = -1/B sum_ij log sigmoid( y_ij (t s_ij + b) ),   y_ii = 1,  y_ij = -1 for i != j

with s = image @ text.T [B, B] for a batch of B pairs, t = 1/tau and the learned bias b = Embeddings.bias. The paper
starts at t = 10 and b = -10. Paper 3's code does not normalise the embeddings; here they are normalised.

`positives: group` also sets y_ij = 1 if i and j are in one group (Embeddings.group), such as captions of one image.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import InputGradients, softplus, tiles
from clipx.types import Embeddings, Part, Progress
from clipx.utils.registry import lookup

POSITIVES = {"pair": False, "group": True}  # True: y_ij = 1 within groups


class SiglipTerm(Term):
    """Loss summed over all B^2 pairs, divided by B."""

    needs: tuple[str, ...] = ("bias",)

    def __init__(self, positives: str = "pair") -> None:
        self.by_group = lookup(POSITIVES, positives, "objective.siglip.positives")
        self.needs = ("bias", "group") if self.by_group else ("bias",)

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        assert embeddings.bias is not None
        image, text, group = embeddings.image, embeddings.text, None
        if self.by_group:
            assert embeddings.group is not None
            group = embeddings.group.to(image.device, non_blocking=True)
        total: Tensor = _SigmoidSum.apply(image, text, embeddings.scale, embeddings.bias, embeddings.part, group)
        return total / len(image), {}


class _SigmoidSum(torch.autograd.Function):
    """-sum_ij log sigmoid(y_ij z_ij) with z = t s + b.

    The forward pass also computes the gradients, because a pair's gradient does not depend on other tiles.
    """

    @staticmethod
    def forward(
        ctx: Any, image: Tensor, text: Tensor, scale: Tensor, bias: Tensor, part: Part, group: Tensor | None
    ) -> Tensor:
        gradients = InputGradients(image, text, scale)
        total, grad_bias = torch.zeros_like(bias), torch.zeros_like(bias)
        for start, (z,) in tiles(image, text, scale, part=part):
            minus_yz = z.add_(bias)
            negate_positives(minus_yz, start, group)
            total += softplus(minus_yz).sum()
            W = minus_yz.sigmoid_()
            negate_positives(W, start, group)
            grad_bias += W.sum()
            gradients.add(start, W)
        total, grad_bias = gradients.complete(part, total, grad_bias)
        ctx.save_for_backward(gradients.image, gradients.text, gradients.scale, grad_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *(grad * saved for saved in ctx.saved_tensors), None, None


def negate_positives(tile: Tensor, start: int, group: Tensor | None) -> None:
    """Multiply a tile by -y_ij, in place. Without groups only the pairs (i, i) are positive."""
    if group is None:
        tile.diagonal(offset=start).neg_()
    else:
        same = group[start : start + len(tile), None] == group
        torch.where(same, -tile, tile, out=tile)
