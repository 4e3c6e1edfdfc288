"""The two cyclic terms of CyCLIP (Goel et al. 2022, eq. 2 and 3; paper 1, section 7).

    cyclic_inmodal     1/B sum_ij (<x_i, x_j> - <y_i, y_j>)^2        images are as similar as their texts
    cyclic_crossmodal  1/B sum_ij (<x_i, y_j> - <x_j, y_i>)^2        the similarity is symmetric

with x = image [B, E], y = text [B, E], without the temperature. CyCLIP's weights are 0.25 each; paper 3's code uses
0.1. CyCLIP's own code multiplies the mean over pairs by B, which equals the sum divided by B.

For B > E the B x B matrices are not formed. With X^T X, X^T Y, Y^T Y [E, E] and D = Y^T X, the sums over pairs are

    inmodal      |X^T X|^2 - 2 |X^T Y|^2 + |Y^T Y|^2
    crossmodal   2 <X^T X, Y^T Y> - 2 sum_ab D_ab D_ba

(Frobenius norm and product). When the term is small, these differences cancel. They are therefore computed in float64,
which is cheap for E x E matrices.
"""

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.types import Embeddings, Progress


class CyclicInmodalTerm(Term):
    """Squared differences between image-image and text-text similarities; sum over pairs, divided by B."""

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        x, y = embeddings.image, embeddings.text
        if len(x) <= x.shape[1]:
            return (x @ x.T - y @ y.T).square().mean() * len(x), {}
        X, Y = x.double(), y.double()
        squares = (X.T @ X).square().sum() - 2 * (X.T @ Y).square().sum() + (Y.T @ Y).square().sum()
        return (squares / len(x)).to(x.dtype), {}


class CyclicCrossmodalTerm(Term):
    """Squared differences between <image i, text j> and <image j, text i>; sum over pairs, divided by B."""

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        x, y = embeddings.image, embeddings.text
        if len(x) <= x.shape[1]:
            s = x @ y.T
            return (s - s.T).square().mean() * len(x), {}
        X, Y = x.double(), y.double()
        D = Y.T @ X
        squares = 2 * ((X.T @ X) * (Y.T @ Y)).sum() - 2 * (D * D.T).sum()
        return (squares / len(x)).to(x.dtype), {}
