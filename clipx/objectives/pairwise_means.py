"""Mean similarity of positive or of negative pairs, without a softmax (paper 1).

    positive  R  = -1/B sum_i s_ii                   section 6; weight lambda = 0.1
    negative  R- =  1/(B^2 - B) sum_{i != j} s_ij    appendix C.2; weight 0.1

with s = image @ text.T [B, B], without the temperature. On unit vectors R is half the mean squared distance of a
positive pair, minus 1. The sum of all s_ij is the dot product of the summed embeddings, which avoids the B x B matrix.
Each process sums over its own pairs; the sums are then added over the processes.
"""

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.types import Embeddings, Progress


class PositiveTerm(Term):
    """Minus the mean similarity of the positive pairs."""

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part = embeddings.part
        x, y = embeddings.image[part.rows], embeddings.text[part.rows]
        return -part.sum((x * y).sum()) / len(embeddings.image), {}


class NegativeTerm(Term):
    """Mean similarity of image i and text j over i != j; 0 for B = 1."""

    learns_temperature = False

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        part = embeddings.part
        x, y = embeddings.image[part.rows], embeddings.text[part.rows]
        B = len(embeddings.image)
        negatives = part.sum(x.sum(dim=0)) @ part.sum(y.sum(dim=0)) - part.sum((x * y).sum())
        return negatives / max(B * B - B, 1), {}
