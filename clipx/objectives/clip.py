"""CLIP: symmetric InfoNCE (paper 1, eq. 3.1; Radford et al. 2021).

    L = -1/B sum_i log( e^{s_ii/tau} / sum_j e^{s_ij/tau} )  -  1/B sum_i log( e^{s_ii/tau} / sum_j e^{s_ji/tau} )

with s = image @ text.T [B, B]. Paper 1 sums the two directions; CLIP's and CyCLIP's code average them,
and so do we unless `average: false`.
"""

from collections.abc import Mapping

from torch import Tensor

from clipx.objectives.base import Term
from clipx.objectives.similarity import Sum, logsumexp, own_logits
from clipx.types import Embeddings, Progress


class ClipTerm(Term):
    """Mean over the batch; half the sum of both directions, or their sum if not `average`."""

    def __init__(self, average: bool = True) -> None:
        self.average = average

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        pairs = embeddings.image, embeddings.text, embeddings.scale
        images, texts = logsumexp(*pairs, (Sum(dim=1), Sum(dim=0)))
        both = (images + texts - 2 * own_logits(*pairs)).mean()
        return both / 2 if self.average else both, {}
