"""AlignCLIP's intra-modality separation, weighted by the texts' distance (Eslami and de Melo, ICLR 2025).

    L = L_image + L_text,   L_image = -1/B sum_i log( e^{l_ii} / sum_j e^{l_ij} )
    l_ij = <x_i, x_j> (1 - <t_i, t_j>) / tau  for j != i,   l_ii = <x_i, y_i> / tau

with x = image, y = text [B, E] and t [B, E'] = the text embeddings of a frozen teacher; L_text uses <y_i, y_j>. Images
with different texts are pushed apart, images with the same text are not. The authors take t from a sentence encoder
(SBERT); here it is the text tower of model.teacher. Their method also shares the towers' transformer, which this term
does not do.

The authors' loss is `clip` summed over both directions plus 0.5 times this term: objective.clip.average=false
objective.align_clip.weight=0.5. Both modalities are computed in tiles of rows: 3 matrix products forward, 4 backward.
"""

import torch.nn.functional as F
from torch import Tensor

from clipx.errors import UserError
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import positive_logits, sum_over_rows
from clipx.types import Embeddings, Progress
from clipx.utils.matmul import dot_products


class AlignClipTerm(Term):
    """Mean over the batch, summed over the modalities.

    Args:
        images: separate the images (the authors' script: true).
        texts: separate the texts (the authors' script: true).
    """

    needs = ("teacher",)

    def __init__(self, images: bool = True, texts: bool = True) -> None:
        if not (images or texts):
            raise UserError("objective.align_clip.images=false and texts=false leave nothing; set one of them to true")
        self.images, self.texts = images, texts

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        assert embeddings.teacher is not None
        t = F.normalize(embeddings.teacher.text, dim=1)

        def loss(tile: slice, x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
            weights = scale * (1 - dot_products(t[tile], t))
            own = positive_logits(x[tile], y[tile], scale)
            total = -(self.images + self.texts) * own.sum()
            for z in (x,) * self.images + (y,) * self.texts:
                logits = weights * dot_products(z[tile], z)
                total = total + logits.diagonal_scatter(own, offset=tile.start).logsumexp(dim=1).sum()
            return total

        inputs = embeddings.image, embeddings.text, embeddings.scale
        return sum_over_rows(loss, inputs, embeddings.part) / len(embeddings.image), {}
