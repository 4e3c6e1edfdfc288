"""True negatives from keyword labels (paper 2, definition 4.1): a text with a different keyword is a true negative.

    L_g = 1/B sum_{i: l_i != 0} g( sum_{j: l_j != 0, l_j != l_i} e^{s_ij/tau} / D_i )

with s = image @ text.T [B, B] and labels l = Embeddings.label [B], 0 for no keyword. The loss is image -> text only,
because the labels come from the texts. B is the size of the whole batch, including pairs without a label.

    g            log1p       log(1 + x)                            ratio       x / (1 + x)
    denominator  own         D_i = e^{s_ii/tau}                    same_label  D_i = sum_{j: l_j = l_i} e^{s_ij/tau}

The denominator `same_label` gives the paper's L'_g; its sum includes j = i. The code computes g as the softplus or the
sigmoid of log x, because x would overflow float32 at tau = 0.01.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import Exclude, Reduction, logsumexp, positive_logits, softplus
from clipx.types import Embeddings, Progress
from clipx.utils.device import on_host
from clipx.utils.registry import lookup

G: dict[str, Callable[[Tensor], Tensor]] = {"log1p": softplus, "ratio": torch.sigmoid}  # as functions of log x
DENOMINATORS = {"own": False, "same_label": True}  # True: D_i sums over all texts with the image's label


class KeywordTerm(Term):
    """Sum over labelled images, divided by B; an image without a true negative adds 0."""

    needs = ("label",)

    def __init__(self, g: str = "log1p", denominator: str = "own") -> None:
        self.g = lookup(G, g, "objective.keyword.g")
        self.sum_same_label = lookup(DENOMINATORS, denominator, "objective.keyword.denominator")

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        assert embeddings.label is not None
        # training has the labels in CPU memory, so that no step waits here
        labelled, device = on_host(embeddings.label).numpy() != 0, embeddings.image.device
        where = torch.from_numpy(np.flatnonzero(labelled)).to(device, non_blocking=True)
        label = embeddings.label.to(device, non_blocking=True)[where]  # [n], of the n labelled pairs
        x, y = embeddings.image[where], embeddings.text[where]  # [n, E]
        part = embeddings.part.select(torch.from_numpy(labelled))
        negatives, same = Reduction(1, Exclude(label)), Reduction(1, Exclude(label, equal=False))
        if self.sum_same_label:
            log_negatives, log_D = logsumexp(x, y, embeddings.scale, [negatives, same], part)  # [n]
        else:
            (log_negatives,) = logsumexp(x, y, embeddings.scale, [negatives], part)
            log_D = positive_logits(x, y, embeddings.scale)
        return self.g(log_negatives - log_D).sum() / len(embeddings.label), {}
