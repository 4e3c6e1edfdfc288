"""CLIP: symmetric InfoNCE (paper 1, eq. 3.1; Radford et al. 2021).

    L = -1/B sum_i log( e^{s_ii/tau} / sum_j e^{s_ij/tau} )  -  1/B sum_i log( e^{s_ii/tau} / sum_j e^{s_ji/tau} )

with s = image @ text.T [B, B] for a batch of B pairs. Paper 1 sums the two directions. The code of CLIP and CyCLIP
averages them, which is the default here; `average: false` sums them.
"""

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import Reduction, logsumexp, positive_logits
from clipx.types import Embeddings, Progress


class ClipTerm(Term):
    """Mean over the batch; average of both directions, or their sum with `average: false`.

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
        both = (images + texts - 2 * positive_logits(*pairs)).mean()
        return both / 2 if self.average else both, {}
