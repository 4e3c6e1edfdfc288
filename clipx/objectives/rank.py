"""RankCLIP: similarities ranked consistently in both modalities (Zhang et al., ICCV 2025).

ListMLE, the negative log-likelihood of an order pi under the Plackett-Luce model with scores l [B]:

    M(l, pi) = sum_k ( log sum_{m >= k} e^{l_pi(m)} - l_pi(k) )
    crossmodal   M(s_i., order of s_.i) + M(s_.i, order of s_i.)     texts near image i, images near text i
    inmodal      M(X_i., order of Y_i.) + M(Y_i., order of X_i.)     X = image @ image.T / tau, Y = text @ text.T / tau

with s = image @ text.T / tau [B, B], its rows s_i. and its columns s_.i. An order goes from the largest to the smallest
value and gets no gradient. The authors' code averages both kinds over i and adds them to CLIP's loss, times w / (32 B).
In epoch e = 1 ... T, w = min(2, 3 (e - 1) / (T - 1)). This term is the sum of both averages times w / (32 B), where
w = 1 without `ramp`.

The authors' code shuffles equal scores, subtracts the row's largest score and adds 1e-10 inside the logarithm. Here
equal scores keep their order in the batch, and the sums are exact. All rows are computed in tiles: 4 matrix products
forward, 8 backward, and a sort of each row.
"""

import torch
from torch import Tensor

from clipx.errors import UserError
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import sum_over_rows
from clipx.types import Embeddings, Progress
from clipx.utils.products import dot_products

LIST_WEIGHT = 1 / 32  # from the authors' code
SLOPE, LARGEST = 3.0, 2.0  # of w, from the authors' code


class RankTerm(Term):
    """Mean over the batch, times w / (32 B).

    Args:
        crossmodal: rank the similarities between image and text.
        inmodal: rank the similarities within each modality.
        ramp: let w grow over the epochs, as in the authors' code; false: w = 1.

    Raises:
        UserError: crossmodal and inmodal are both false.
    """

    needs = ("progress",)

    def __init__(self, crossmodal: bool = True, inmodal: bool = True, ramp: bool = False) -> None:
        if not (crossmodal or inmodal):
            raise UserError("objective.rank.crossmodal=false and inmodal=false leave nothing; set one of them to true")
        self.crossmodal, self.inmodal, self.ramp = crossmodal, inmodal, ramp

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        def loss(rows: slice, x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
            total = scale.new_zeros(())
            pairs = (((x, y), (y, x)),) * self.crossmodal + (((x, x), (y, y)),) * self.inmodal
            for sides in pairs:
                one, other = (scale * dot_products(a[rows], b) for a, b in sides)
                total = total + list_mle(one, other) + list_mle(other, one)
            return total

        B = len(embeddings.image)
        inputs = embeddings.image, embeddings.text, embeddings.scale
        w = ramp(progress) if self.ramp else 1.0
        return w * LIST_WEIGHT / B**2 * sum_over_rows(loss, inputs, embeddings.part), {}

    def notes(self, total_epochs: int) -> list[str]:
        if self.ramp and total_epochs == 1:
            return ["objective.rank.ramp=true gives this term weight 0 in the first epoch, the only one of this run"]
        return []


def list_mle(scores: Tensor, ranked_by: Tensor) -> Tensor:
    """Return the negative log-likelihood of the descending order of `ranked_by`, summed over the rows; both [b, B]."""
    order = ranked_by.detach().argsort(dim=1, descending=True, stable=True)
    ascending = scores.gather(1, order).flip(1)
    return (torch.logcumsumexp(ascending, dim=1) - ascending).sum()


def ramp(progress: Progress) -> float:
    """Return w of the current epoch; 0 in the first epoch."""
    return min(LARGEST, SLOPE * progress.epoch / max(1, progress.total_epochs - 1))
