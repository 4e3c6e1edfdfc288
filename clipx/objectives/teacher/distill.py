"""Distillation of a frozen teacher's similarities (DistillClipLoss of open_clip).

    L = 1/2 (L_image + L_text),   L_image = -1/B sum_ij q_ij log p_ij
    p_ij = e^{s_ij/tau} / sum_k e^{s_ik/tau},   q_ij = the same of the frozen teacher, with its own s and tau

with s = image @ text.T [B, B]; L_text uses s_ji. open_clip adds this to its CLIP loss: `clip` and `distill`, weight 1
each. Both directions are computed in tiles of rows: 4 matrix products forward (2 of them for the teacher), 4 backward.
"""

from torch import Tensor

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import sum_over_rows
from clipx.types import Embeddings, Progress
from clipx.utils.matmul import dot_products


class DistillTerm(Term):
    """Cross-entropy with the teacher's softmax; mean over the batch and both directions."""

    needs = ("teacher",)

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        teacher = embeddings.teacher
        assert teacher is not None

        def loss(tile: slice, x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
            total = scale.new_zeros(())
            for a, b, teacher_a, teacher_b in (
                (x, y, teacher.image, teacher.text),
                (y, x, teacher.text, teacher.image),
            ):
                q = (teacher.scale * dot_products(teacher_a[tile], teacher_b)).softmax(dim=1)
                total = total - (q * (scale * dot_products(a[tile], b)).log_softmax(dim=1)).sum()
            return total

        inputs = embeddings.image, embeddings.text, embeddings.scale
        return sum_over_rows(loss, inputs, embeddings.part) / (2 * len(embeddings.image)), {}
