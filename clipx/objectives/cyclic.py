"""The two cyclic terms of CyCLIP (Goel et al. 2022, eq. 2 and 3; paper 1, section 7).

    cyclic_inmodal     1/B sum_ij (<x_i, x_j> - <y_i, y_j>)^2        images are as similar as their texts
    cyclic_crossmodal  1/B sum_ij (<x_i, y_j> - <x_j, y_i>)^2        the similarity is symmetric

with x = image [B, E], y = text [B, E], without the temperature; CyCLIP's weights are 0.25 each. Paper 3's code takes
0.1, and CyCLIP's own code multiplies the mean over pairs by B, which is the same as the sum over B here.
"""

from collections.abc import Mapping

from torch import Tensor

from clipx.objectives.base import Term
from clipx.types import Embeddings, Progress


class CyclicInmodalTerm(Term):
    """Sum over pairs, divided by B."""

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        x, y = embeddings.image, embeddings.text
        return (x @ x.T - y @ y.T).square().sum() / len(x), {}


class CyclicCrossmodalTerm(Term):
    """Sum over pairs, divided by B."""

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        s = embeddings.image @ embeddings.text.T
        return (s - s.T).square().sum() / len(s), {}
