"""NegCLIP: InfoNCE with a hard negative caption for each pair (Yuksekgonul et al., ICLR 2023).

    L = 1/2 (L_image + L_text)
    L_image = -1/B sum_i log( e^{s_ii/tau} / sum_j (e^{s_ij/tau} + e^{n_ij/tau}) )
    L_text  = -1/B sum_i log( e^{s_ii/tau} / sum_j e^{s_ji/tau} )

with x = image, y = text, y' = Embeddings.negative_text [B, E], s = x @ y.T and n = x @ y'.T. Images choose among all
captions and all negatives of the batch, true captions among all images.

The authors also put similar images into one batch, as further pairs; this term does not choose batches. It takes twice
as many matrix products as `clip`.
"""

import torch

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import Reduction, logsumexp, positive_logits
from clipx.types import Embeddings, Progress


class NegclipTerm(Term):
    """Mean over the batch, and over both directions."""

    needs = ("negative_text",)

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        assert embeddings.negative_text is not None
        x, y, scale, part = embeddings.image, embeddings.text, embeddings.scale, embeddings.part
        captions, texts = logsumexp(x, y, scale, (Reduction(dim=1), Reduction(dim=0)), part)
        (negatives,) = logsumexp(x, embeddings.negative_text, scale, (Reduction(dim=1),), part)
        return (torch.logaddexp(captions, negatives) + texts - 2 * positive_logits(x, y, scale)).mean() / 2, {}
