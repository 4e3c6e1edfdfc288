"""The two cyclic terms of CyCLIP (Goel et al. 2022, eq. 2 and 3; paper 1, section 7).

    cyclic_inmodal     1/B sum_ij A_ij^2,  A_ij = <x_i, x_j> - <y_i, y_j>    images are as similar as their texts
    cyclic_crossmodal  1/B sum_ij A_ij^2,  A_ij = <x_i, y_j> - <x_j, y_i>    the similarity is symmetric

with x = image [B, E], y = text [B, E], without the temperature. CyCLIP's weights are 0.25 each; paper 3's code uses
0.1. CyCLIP's own code multiplies the mean over pairs by B, which equals the sum divided by B.

For B > E the B x B matrices are not formed. With X^T X, X^T Y, Y^T Y [E, E] and D = Y^T X, the sums over pairs are

    inmodal      |X^T X|^2 - 2 |X^T Y|^2 + |Y^T Y|^2
    crossmodal   2 <X^T X, Y^T Y> - 2 sum_ab D_ab D_ba

(Frobenius norm and product). When the term is small, these differences cancel. They are therefore computed in float64,
which is cheap for E x E matrices.

Sums over i run over this process's pairs and are then added over the processes. The E x E matrices are such sums.
"""

from torch import Tensor

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.types import Embeddings, Progress


class CyclicInmodalTerm(Term):
    """Squared differences between image-image and text-text similarities; sum over pairs, divided by B."""

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part, B = embeddings.part, len(embeddings.image)
        x, y = embeddings.image[part.rows], embeddings.text[part.rows]
        if x.shape[1] >= B:
            A = x @ embeddings.image.detach().T - y @ embeddings.text.detach().T
            return twice_the_gradient(part.sum(A.square().sum())) / B, {}
        X, Y = x.double(), y.double()
        XX, XY, YY = part.sum(X.T @ X), part.sum(X.T @ Y), part.sum(Y.T @ Y)
        squares = XX.square().sum() - 2 * XY.square().sum() + YY.square().sum()
        return (squares / B).to(x.dtype), {}


class CyclicCrossmodalTerm(Term):
    """Squared differences between <image i, text j> and <image j, text i>; sum over pairs, divided by B."""

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part, B = embeddings.part, len(embeddings.image)
        x, y = embeddings.image[part.rows], embeddings.text[part.rows]
        if x.shape[1] >= B:
            A = x @ embeddings.text.detach().T - y @ embeddings.image.detach().T
            return twice_the_gradient(part.sum(A.square().sum())) / B, {}
        X, Y = x.double(), y.double()
        XX, YY, D = part.sum(X.T @ X), part.sum(Y.T @ Y), part.sum(Y.T @ X)
        squares = 2 * (XX * YY).sum() - 2 * (D * D.T).sum()
        return (squares / B).to(x.dtype), {}


def twice_the_gradient(squares: Tensor) -> Tensor:
    """Return `squares` = sum_ij A_ij^2 with its full gradient; the gradient of `squares` holds all vectors j constant.

    A_ji = A_ij or -A_ij, so each vector has equal gradients as i and as j. Only i is one of this process's pairs.
    """
    return 2 * squares - squares.detach()
