"""True negatives from keyword labels (paper 2, section 4): texts with another keyword are known to be wrong.

    L_g = 1/B sum_{i: l_i != 0} g( sum_{j: l_j != 0, l_j != l_i} e^{s_ij/tau} / D_i )

with s = image @ text.T [B, B], labels l = Embeddings.label [B] (0: no keyword), image -> text only, because the
labels come from the texts. B counts the whole batch, pairs without a label included.

    g            log1p       log(1 + x)                            ratio       x / (1 + x)
    denominator  own         D_i = e^{s_ii/tau}                    same_label  D_i = sum_{j: l_j = l_i} e^{s_ij/tau}

`same_label` is the paper's L'_g; its sum includes j = i. In log space g is softplus and sigmoid of log x: x itself
overflows float32 at tau = 0.01.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from clipx.objectives.base import Term
from clipx.objectives.similarity import Sum, logsumexp, own_logits, softplus
from clipx.types import Embeddings, Progress
from clipx.utils.registry import lookup

G: dict[str, Callable[[Tensor], Tensor]] = {"log1p": softplus, "ratio": torch.sigmoid}  # of log x
DENOMINATORS = {"own": False, "same_label": True}  # whether all texts with the image's label are summed


class KeywordTerm(Term):
    """Sum over labelled images, divided by B; an image without a contradicting text counts 0.

    Raises:
        UserError: unknown g or denominator.
    """

    def __init__(self, g: str = "log1p", denominator: str = "own") -> None:
        self.g = lookup(G, g, "objective.keyword.g")
        self.sum_same = lookup(DENOMINATORS, denominator, "objective.keyword.denominator")

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        labelled = embeddings.label != 0
        x, y, label = embeddings.image[labelled], embeddings.text[labelled], embeddings.label[labelled]

        def other_label(tile: Tensor, start: int) -> None:
            tile.masked_fill_(label[start : start + len(tile), None] == label, -torch.inf)

        def same_label(tile: Tensor, start: int) -> None:
            tile.masked_fill_(label[start : start + len(tile), None] != label, -torch.inf)

        if self.sum_same:
            others, D = logsumexp(x, y, embeddings.scale, (Sum(1, other_label), Sum(1, same_label)))
        else:
            (others,) = logsumexp(x, y, embeddings.scale, (Sum(1, other_label),))
            D = own_logits(x, y, embeddings.scale)
        return self.g(others - D).sum() / len(labelled), {}
