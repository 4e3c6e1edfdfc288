"""SigLIP: a sigmoid for every pair (Zhai et al. 2023, algorithm 1; a baseline of paper 3).

    L = -1/B sum_ij log sigmoid( y_ij (t s_ij + b) ),   y_ii = 1,  y_ij = -1 for i != j

with s = image @ text.T [B, B], t = 1/tau and the learned bias b = Embeddings.bias; t = 10 and b = -10 at the start.
Paper 3's code forgets to normalise the embeddings; here they come normalised.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from clipx.errors import UserError
from clipx.objectives.base import Term
from clipx.objectives.similarity import Gradients, softplus, tiles
from clipx.types import Embeddings, Progress


class SiglipTerm(Term):
    """Sum over all pairs, divided by B."""

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if embeddings.bias is None:
            raise UserError("objective.siglip needs a learned logit bias and there is none: set temperature.bias=-10")
        total: Tensor = _SigmoidSum.apply(embeddings.image, embeddings.text, embeddings.scale, embeddings.bias)
        return total / len(embeddings.image), {}


class _SigmoidSum(torch.autograd.Function):
    """-sum_ij log sigmoid(y_ij z_ij). No value depends on another tile, so one pass gives the gradients too."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, text: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        gradients = Gradients(image, text, scale)
        total, grad_bias = torch.zeros_like(bias), torch.zeros_like(bias)
        for start, (z,) in tiles(image, text, scale):
            v = z.add_(bias)  # becomes -y z
            v.diagonal(offset=start).neg_()
            total += softplus(v).sum()
            W = v.sigmoid_()
            W.diagonal(offset=start).neg_()
            grad_bias += W.sum()
            gradients.add(start, W)
        ctx.save_for_backward(gradients.image, gradients.text, gradients.scale, grad_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return tuple(grad * saved for saved in ctx.saved_tensors)
