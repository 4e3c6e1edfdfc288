"""Terms on similarities of pairs, without softmax and temperature: paper 1's regularisers and those of CyCLIP.

With s = image @ text.T [B, B], and the rows x_i of X = image and y_i of Y = text, both [B, E]. No B x B matrix is
formed. Each process sums over its own pairs i. These sums, such as E x E matrices, are then added over the processes.

The cyclic terms are those of Goel et al. 2022, eq. 2 and 3 (paper 1, section 7), with Frobenius norms and products.
CyCLIP's weights are 0.25 each; paper 3's code uses 0.1. CyCLIP's own code multiplies the mean of A_ij^2 by B, which
equals the sum divided by B. When the terms are small, their differences cancel. They are therefore computed in float64,
which is cheap for E x E matrices.
"""

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.types import Embeddings, Progress


class PositiveTerm(Term):
    """Minus the mean similarity of the positive pairs, R = -1/B sum_i s_ii (paper 1, section 6; weight lambda = 0.1).

    On unit vectors R is half the mean squared distance of a positive pair, minus 1.
    """

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part = embeddings.part
        x, y = embeddings.image[part.rows], embeddings.text[part.rows]
        return -part.sum((x * y).sum()) / len(embeddings.image), {}


class NegativeTerm(Term):
    """Mean similarity of negative pairs, R- = 1/(B^2 - B) sum_{i != j} s_ij; 0 for B = 1 (paper 1, C.2; weight 0.1).

    The sum of all s_ij is the dot product of the summed embeddings.
    """

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part = embeddings.part
        x, y = embeddings.image[part.rows], embeddings.text[part.rows]
        B = len(embeddings.image)
        negatives = part.sum(x.sum(dim=0)) @ part.sum(y.sum(dim=0)) - part.sum((x * y).sum())
        return negatives / max(B * B - B, 1), {}


class CyclicInmodalTerm(Term):
    """Squared differences between image-image and text-text similarities; sum over pairs, divided by B.

    1/B sum_ij A_ij^2,  A_ij = <x_i, x_j> - <y_i, y_j>
    sum_ij A_ij^2 = |X^T X|^2 - 2 |X^T Y|^2 + |Y^T Y|^2
    """

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part, B = embeddings.part, len(embeddings.image)
        X, Y = embeddings.image[part.rows].double(), embeddings.text[part.rows].double()
        XX, XY, YY = part.sum(X.T @ X), part.sum(X.T @ Y), part.sum(Y.T @ Y)
        squares = XX.square().sum() - 2 * XY.square().sum() + YY.square().sum()
        return (squares / B).to(embeddings.image.dtype), {}


class CyclicCrossmodalTerm(Term):
    """Squared differences between <image i, text j> and <image j, text i>; sum over pairs, divided by B.

    1/B sum_ij A_ij^2,  A_ij = <x_i, y_j> - <x_j, y_i>
    sum_ij A_ij^2 = 2 <X^T X, Y^T Y> - 2 sum_ab D_ab D_ba,  D = Y^T X
    """

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part, B = embeddings.part, len(embeddings.image)
        X, Y = embeddings.image[part.rows].double(), embeddings.text[part.rows].double()
        XX, YY, D = part.sum(X.T @ X), part.sum(Y.T @ Y), part.sum(Y.T @ X)
        squares = 2 * (XX * YY).sum() - 2 * (D * D.T).sum()
        return (squares / B).to(embeddings.image.dtype), {}
