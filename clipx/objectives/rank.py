"""RankCLIP: similarities ranked consistently in both modalities (Zhang et al., ICCV 2025).

ListMLE, the negative log-likelihood of an order pi under the Plackett-Luce model with scores l [B]:

    M(l, pi) = sum_k ( log sum_{m >= k} e^{l_pi(m)} - l_pi(k) )
    crossmodal   M(s_i., order of s_.i) + M(s_.i, order of s_i.)     texts near image i, images near text i
    inmodal      M(X_i., order of Y_i.) + M(Y_i., order of X_i.)     X = image @ image.T / tau, Y = text @ text.T / tau

with s = image @ text.T / tau [B, B], its rows s_i. and its columns s_.i. An order goes from the largest to the smallest
value and gets no gradient. The authors' code averages both kinds over i and adds w / (32 B) times these averages to
CLIP's loss. In epoch e = 1 ... T, w = min(2, 3 (e - 1) / (T - 1)). This term is the sum of both averages times
w / (32 B), where w = 1 without `ramp`.

The authors' code shuffles equal scores, subtracts the row's largest score and adds 1e-10 inside the logarithm. Here
equal scores keep their order in the batch, and nothing is added. The gradient has a closed form, with k(j) the place of
j in the order:

    dM/dl_j = e^{l_j} sum_{k <= k(j)} 1 / sum_{m >= k} e^{l_pi(m)} - 1

The rows are computed in tiles: 12 matrix products (`clip`: 4) and 4 sorts of each row. On a CPU at B = 8192, `rank`
takes about fifteen times as long as `clip`; the sorts take almost half of this time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from clipx.errors import UserError
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import sum_over_rows
from clipx.types import Embeddings, Progress
from clipx.utils.matmul import dot_products

LIST_WEIGHT = 1 / 32  # from the authors' code
SLOPE, LARGEST = 3.0, 2.0  # of w, from the authors' code
SMALLEST = -600.0  # lower bound of l_j - max l; with unit vectors and tau = 0.01, l_j - max l is at least -200


class RankTerm(Term):
    """Mean over the batch, times w / (32 B). Sorts every row: about fifteen times the time of `clip` on a CPU.

    Args:
        crossmodal: rank the similarities between image and text.
        inmodal: rank the similarities within each modality.
        ramp: let w grow over the epochs, as in the authors' code; false: w = 1.
    """

    needs = ("progress",)

    def __init__(self, crossmodal: bool = True, inmodal: bool = True, ramp: bool = False) -> None:
        if not (crossmodal or inmodal):
            raise UserError("objective.rank.crossmodal=false and inmodal=false leave nothing; set one of them to true")
        self.crossmodal, self.inmodal, self.ramp = crossmodal, inmodal, ramp

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        def loss(tile: slice, x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
            total = scale.new_zeros(())
            pairs = [((x, y), (y, x))] if self.crossmodal else []
            pairs += [((x, x), (y, y))] if self.inmodal else []
            for sides in pairs:
                one, other = (scale * dot_products(a[tile], b) for a, b in sides)
                total = total + _ListMle.apply(one, other.detach()) + _ListMle.apply(other, one.detach())
            return total

        B = len(embeddings.image)
        inputs = embeddings.image, embeddings.text, embeddings.scale
        w = ramp(progress) if self.ramp else 1.0
        return w * LIST_WEIGHT / B**2 * sum_over_rows(loss, inputs, embeddings.part), {}

    def notes(self, total_epochs: int) -> list[str]:
        if self.ramp and total_epochs == 1:
            return ["objective.rank.ramp=true gives this term weight 0 in the first epoch, the only one of this run"]
        return []


class _ListMle(torch.autograd.Function):
    """Sum over rows of M(scores, descending order of ranked_by), both [b, B].

    Computed in float64, because e^l varies by a factor of up to e^200 at tau = 0.01.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, ranked_by: Tensor) -> Tensor:
        order = ranked_by.argsort(dim=1, descending=True, stable=True)
        l_pi = (scores - scores.amax(dim=1, keepdim=True)).gather(1, order).double().clamp_(min=SMALLEST)
        total = -l_pi.sum()
        exp = l_pi.exp_()
        sums = exp.flip(1).cumsum(1).flip(1)  # over m >= k
        total += sums.log().sum()
        gradient = sums.reciprocal_().cumsum(1).mul_(exp).sub_(1)
        ctx.save_for_backward(torch.empty_like(scores).scatter_(1, order, gradient.to(scores)))
        return total.to(scores)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return grad * gradient, None


def ramp(progress: Progress) -> float:
    """Return w of the current epoch; 0 in the first epoch."""
    return min(LARGEST, SLOPE * progress.epoch / max(1, progress.total_epochs - 1))
