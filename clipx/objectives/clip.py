"""InfoNCE losses: a softmax over the pairs of the batch.

With x = image, y = text [B, E] and s = x @ y.T [B, B] for a batch of B pairs.
"""

import numpy as np
import torch
from torch import Tensor

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import Reduction, logsumexp, positive_logits
from clipx.types import Embeddings, Progress
from clipx.utils.device import on_host


class ClipTerm(Term):
    """CLIP: symmetric InfoNCE (paper 1, eq. 3.1; Radford et al. 2021); mean over the batch.

        L = -1/B sum_i log( e^{s_ii/tau} / sum_j e^{s_ij/tau} )  -  1/B sum_i log( e^{s_ii/tau} / sum_j e^{s_ji/tau} )

    Paper 1 sums the two directions. The code of CLIP and CyCLIP averages them, which is the default here;
    `average: false` sums them.

    Example (B = 4 pairs, dimension E = 8; equal embeddings give log B):
        >>> import torch
        >>> from clipx import objectives
        >>> same = torch.nn.functional.normalize(torch.ones(4, 8), dim=1)
        >>> batch = Embeddings(same, same, torch.tensor(1 / 0.07), torch.arange(4), torch.zeros(4, dtype=torch.int64))
        >>> objective = objectives.build({"clip": {}}, num_samples=4)
        >>> loss = objective(batch, {}, Progress(step=0, total_steps=1, epoch=0, total_epochs=1))
        >>> round(loss.total.item(), 4)
        1.3863
    """

    def __init__(self, average: bool = True) -> None:
        self.average = average

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        pairs = embeddings.image, embeddings.text, embeddings.scale
        images, texts = logsumexp(*pairs, (Reduction(dim=1), Reduction(dim=0)), embeddings.part)
        both = (images + texts - 2 * self.positives(embeddings)).mean()
        return both / 2 if self.average else both, {}

    def positives(self, embeddings: Embeddings) -> Tensor:
        """Return the logit of each positive pair, [B]."""
        return positive_logits(embeddings.image, embeddings.text, embeddings.scale)


class MultiPositiveTerm(ClipTerm):
    """InfoNCE with several positives, all pairs of a group (Khosla et al. 2020, SupCon, eq. 2: L_out).

        L = 1/2 (L_image + L_text)
        L_image = -1/B sum_i 1/|P(i)| sum_{p in P(i)} log( e^{s_ip/tau} / sum_j e^{s_ij/tau} )

    with P(i) = {p: group_p = group_i}, i included; L_text uses s_pi and s_ji. Mean over the batch; average of both
    directions, or their sum with `average: false`. SupCon contrasts samples of one modality and leaves the anchor out
    of both sums. Here the contrasted samples are of the other modality, so nothing is left out. If every group has one
    pair, this is `clip`.

    The mean of s_ip over P(i) is computed without a B x B matrix, as the product <x_i, mean of y_p over P(i)>.
    """

    needs = ("group",)

    def positives(self, embeddings: Embeddings) -> Tensor:
        assert embeddings.group is not None
        # sum_i <x_i, mean of y over P(i)> = sum_i <mean of x over P(i), y_i>: both directions have the same positives
        return positive_logits(embeddings.image, group_means(embeddings.text, embeddings.group), embeddings.scale)


def group_means(vectors: Tensor, group: Tensor) -> Tensor:
    """Return the mean vector of each pair's group, [B, E]."""
    # training has the groups in CPU memory, so that no step waits here
    found, inverse, counts = np.unique(on_host(group).numpy(), return_inverse=True, return_counts=True)
    index, count = (torch.from_numpy(values).to(vectors.device, non_blocking=True) for values in (inverse, counts))
    sums = vectors.new_zeros(len(found), vectors.shape[1]).index_add(0, index, vectors)
    means: Tensor = sums / count[:, None]
    return means[index]


class NegclipTerm(Term):
    """NegCLIP: InfoNCE with a hard negative caption for each pair (Yuksekgonul et al., ICLR 2023).

        L = 1/2 (L_image + L_text)
        L_image = -1/B sum_i log( e^{s_ii/tau} / sum_j (e^{s_ij/tau} + e^{n_ij/tau}) )
        L_text  = -1/B sum_i log( e^{s_ii/tau} / sum_j e^{s_ji/tau} )

    with y' = Embeddings.negative_text [B, E] and n = x @ y'.T. Images choose among all captions and all negatives of
    the batch, true captions among all images. Mean over the batch, and over both directions.

    The authors also put similar images into one batch, as further pairs; this term does not choose batches. It takes
    twice as many matrix products as `clip`.
    """

    needs = ("negative_text",)

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        assert embeddings.negative_text is not None
        x, y, scale, part = embeddings.image, embeddings.text, embeddings.scale, embeddings.part
        captions, texts = logsumexp(x, y, scale, (Reduction(dim=1), Reduction(dim=0)), part)
        (negatives,) = logsumexp(x, embeddings.negative_text, scale, (Reduction(dim=1),), part)
        return (torch.logaddexp(captions, negatives) + texts - 2 * positive_logits(x, y, scale)).mean() / 2, {}
