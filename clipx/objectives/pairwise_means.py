"""Linear terms of paper 1: pull pairs together, or push the others apart (section 4 and Table 5).

    positive  R  = -1/B sum_i s_ii                       weight lambda = 0.1
    negative  R- =  1/(B^2 - B) sum_{i != j} s_ij        weight 0.1: the paper's 0.1/(B^2 - B) on the sum

with s = image @ text.T [B, B], without the temperature. On unit vectors R is half the mean squared distance of a
pair, minus 1. The sum over all pairs is the dot product of the summed embeddings, so that no B x B matrix is needed.
"""

from collections.abc import Mapping

from torch import Tensor

from clipx.objectives.base import Term
from clipx.types import Embeddings, Progress


class PositiveTerm(Term):
    """Minus the mean similarity of a pair."""

    learns_temperature = False

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return -(embeddings.image * embeddings.text).sum(dim=1).mean(), {}


class NegativeTerm(Term):
    """Mean similarity of image i and text j over i != j; 0 for B = 1."""

    learns_temperature = False

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        x, y = embeddings.image, embeddings.text
        B = len(x)
        others = x.sum(dim=0) @ y.sum(dim=0) - (x * y).sum()
        return others / max(B * B - B, 1), {}
