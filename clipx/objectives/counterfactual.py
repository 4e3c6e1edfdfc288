"""The counting loss of Paiss et al. (ICCV 2023, arXiv 2302.12066): a caption against its counterfactual.

    L = -1/B sum_i log( e^{s_i} / (e^{s_i} + e^{n_i}) ),   s_i = <x_i, y_i>,  n_i = <x_i, y'_i>

with the images x_i, their captions y_i, and y' = Embeddings.negative_text: the captions with another number in the
paper, here any false captions of the source. The authors fine-tune with CLIP's loss and this one, with weight
lambda = 1: `objective=clip_counterfactual`. Only some of their images have a counterfactual; here each has one.

The form is that of a public reproduction (SforAiDl/CountCLIP), which has no temperature; we could not read the paper's
own text or code. On unit vectors the loss then stays between log(1 + e^-2) and log(1 + e^2), and its gradient is small
beside that of `clip`. `scaled: true` divides s and n by tau.
"""

from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import positive_logits, softplus
from clipx.types import Embeddings, Progress


class CounterfactualTerm(Term):
    """Mean over the batch.

    Args:
        scaled: divide the similarities by tau.
    """

    needs = ("negative_text",)

    def __init__(self, scaled: bool = False) -> None:
        self.scaled = self.learns_temperature = scaled

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        assert embeddings.negative_text is not None
        scale = embeddings.scale if self.scaled else embeddings.scale.new_ones(())
        own = positive_logits(embeddings.image, embeddings.text, scale)
        return softplus(positive_logits(embeddings.image, embeddings.negative_text, scale) - own).mean(), {}
