"""InfoNCE with several positives: all pairs of a group (Khosla et al. 2020, SupCon, eq. 2: L_out).

    L = 1/2 (L_image + L_text),   L_image = -1/B sum_i 1/|P(i)| sum_{p in P(i)} log( e^{s_ip/tau} / sum_j e^{s_ij/tau} )

with x = image, y = text [B, E], s = x @ y.T and P(i) = {p: group_p = group_i}, i included; L_text uses s_pi and s_ji.
SupCon contrasts samples of one modality and leaves the anchor out of both sums. Here the contrasted samples are of the
other modality, so nothing is left out. If every group has one pair, this is `clip`.

The mean of s_ip over P(i) is computed without a B x B matrix, as the product <x_i, mean of y_p over P(i)>.
"""

import torch
from torch import Tensor

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import Reduction, logsumexp, positive_logits
from clipx.types import Embeddings, Progress


class MultiPositiveTerm(Term):
    """Mean over the batch; average of both directions, or their sum with `average: false`."""

    needs = ("group",)

    def __init__(self, average: bool = True) -> None:
        self.average = average

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        assert embeddings.group is not None
        x, y, scale = embeddings.image, embeddings.text, embeddings.scale
        images, texts = logsumexp(x, y, scale, (Reduction(dim=1), Reduction(dim=0)), embeddings.part)
        # sum_i <x_i, mean of y over P(i)> = sum_i <mean of x over P(i), y_i>: both directions have the same positives
        positives = positive_logits(x, group_means(y, embeddings.group), scale)
        both = (images + texts - 2 * positives).mean()
        return both / 2 if self.average else both, {}


def group_means(vectors: Tensor, group: Tensor) -> Tensor:
    """Return the mean vector of each pair's group, [B, E]."""
    _, index, count = torch.unique(group, return_inverse=True, return_counts=True)
    sums = vectors.new_zeros(len(count), vectors.shape[1]).index_add(0, index, vectors)
    means: Tensor = sums / count[:, None]
    return means[index]
