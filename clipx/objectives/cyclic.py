"""The two cyclic terms of CyCLIP (Goel et al. 2022, eq. 2 and 3; paper 1, section 7).

    cyclic_inmodal     1/B sum_ij A_ij^2,  A_ij = <x_i, x_j> - <y_i, y_j>    0 if images are as similar as their texts
    cyclic_crossmodal  1/B sum_ij A_ij^2,  A_ij = <x_i, y_j> - <x_j, y_i>    0 if the similarity is symmetric

with the rows x_i of X = image and y_i of Y = text, both [B, E], without the temperature. CyCLIP's weights are 0.25
each; paper 3's code uses 0.1. CyCLIP's own code multiplies the mean of A_ij^2 by B, which equals the sum divided by B.

The B x B matrices are not formed. With D = Y^T X [E, E], the sums of A_ij^2 are

    inmodal      |X^T X|^2 - 2 |X^T Y|^2 + |Y^T Y|^2
    crossmodal   2 <X^T X, Y^T Y> - 2 sum_ab D_ab D_ba

(Frobenius norm and product). When the term is small, these differences cancel. They are therefore computed in float64,
which is cheap for E x E matrices.

Each process sums over its own pairs i. These sums, such as the E x E matrices, are then added over the processes.
"""

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.types import Embeddings, Progress


class CyclicInmodalTerm(Term):
    """Squared differences between image-image and text-text similarities; sum over pairs, divided by B."""

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part, B = embeddings.part, len(embeddings.image)
        X, Y = embeddings.image[part.rows].double(), embeddings.text[part.rows].double()
        XX, XY, YY = part.sum(X.T @ X), part.sum(X.T @ Y), part.sum(Y.T @ Y)
        squares = XX.square().sum() - 2 * XY.square().sum() + YY.square().sum()
        return (squares / B).to(embeddings.image.dtype), {}


class CyclicCrossmodalTerm(Term):
    """Squared differences between <image i, text j> and <image j, text i>; sum over pairs, divided by B."""

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part, B = embeddings.part, len(embeddings.image)
        X, Y = embeddings.image[part.rows].double(), embeddings.text[part.rows].double()
        XX, YY, D = part.sum(X.T @ X), part.sum(Y.T @ Y), part.sum(Y.T @ X)
        squares = 2 * (XX * YY).sum() - 2 * (D * D.T).sum()
        return (squares / B).to(embeddings.image.dtype), {}
