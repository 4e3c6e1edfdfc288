"""The two cyclic terms of CyCLIP (Goel et al. 2022, eq. 2 and 3; paper 1, section 7).

    cyclic_inmodal     1/B sum_ij (<x_i, x_j> - <y_i, y_j>)^2        images are as similar as their texts
    cyclic_crossmodal  1/B sum_ij (<x_i, y_j> - <x_j, y_i>)^2        the similarity is symmetric

with x = image [B, E], y = text [B, E], without the temperature; CyCLIP's weights are 0.25 each. Paper 3's code takes
0.1, and CyCLIP's own code multiplies the mean over pairs by B, which is the same as the sum over B here.

For B > E the B x B matrices are not formed: with X^T X, X^T Y, Y^T Y [E, E] and D = Y^T X,

    sum_ij (..)^2  =  |X^T X|^2 - 2 |X^T Y|^2 + |Y^T Y|^2     and     2 <X^T X, Y^T Y> - 2 sum_ab D_ab D_ba

(Frobenius norm and product). These differences cancel when the term is small, so they are taken in float64, which
the E / B times smaller products can afford.
"""

from collections.abc import Mapping

from torch import Tensor

from clipx.objectives.base import Term
from clipx.types import Embeddings, Progress


class CyclicInmodalTerm(Term):
    """Images against texts, each among themselves; sum over pairs, divided by B."""

    learns_temperature = False

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        x, y = embeddings.image, embeddings.text
        if len(x) <= x.shape[1]:
            return (x @ x.T - y @ y.T).square().mean() * len(x), {}
        X, Y = x.double(), y.double()
        squares = (X.T @ X).square().sum() - 2 * (X.T @ Y).square().sum() + (Y.T @ Y).square().sum()
        return (squares / len(x)).to(x.dtype), {}


class CyclicCrossmodalTerm(Term):
    """Image i with text j against image j with text i; sum over pairs, divided by B."""

    learns_temperature = False

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        x, y = embeddings.image, embeddings.text
        if len(x) <= x.shape[1]:
            s = x @ y.T
            return (s - s.T).square().mean() * len(x), {}
        X, Y = x.double(), y.double()
        D = Y.T @ X
        squares = 2 * ((X.T @ X) * (Y.T @ Y)).sum() - 2 * (D * D.T).sum()
        return (squares / len(x)).to(x.dtype), {}
