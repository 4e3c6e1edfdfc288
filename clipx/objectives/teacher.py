"""Terms with a frozen teacher, model.teacher.

With x = image, y = text [B, E]. All are computed in tiles of rows.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.config.setting import POSITIVE, SHARE, check_range
from clipx.errors import UserError
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import positive_logits, sum_over_rows
from clipx.types import Embeddings, Progress
from clipx.utils import rng
from clipx.utils.matmul import dot_products

STREAM = 0x52464E  # separates the random draws of clip_refine from other draws seeded by the step


class DistillTerm(Term):
    """Cross-entropy with a frozen teacher's softmax; mean over the batch and both directions (DistillClipLoss).

        L = 1/2 (L_image + L_text),   L_image = -1/B sum_ij q_ij log p_ij
        p_ij = e^{s_ij/tau} / sum_k e^{s_ik/tau},   q_ij = the same of the frozen teacher, with its own s and tau

    with s = image @ text.T [B, B]; L_text uses s_ji. open_clip adds this to its CLIP loss: `clip` and `distill`, weight
    1 each. 4 matrix products forward (2 of them for the teacher), 4 backward.
    """

    needs = ("teacher",)

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        teacher = embeddings.teacher
        assert teacher is not None

        def loss(tile: slice, x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
            total, sides = scale.new_zeros(()), ((x, teacher.image), (y, teacher.text))
            for (a, teacher_a), (b, teacher_b) in (sides, sides[::-1]):
                q = (teacher.scale * dot_products(teacher_a[tile], teacher_b)).softmax(dim=1)
                total = total - (q * (scale * dot_products(a[tile], b)).log_softmax(dim=1)).sum()
            return total

        inputs = embeddings.image, embeddings.text, embeddings.scale
        return sum_over_rows(loss, inputs, embeddings.part) / (2 * len(embeddings.image)), {}


class FeatureDistillTerm(Term):
    """Mean squared distance to a frozen teacher's embeddings, summed over both towers.

        L = 1/B sum_i ( |x_i - x'_i|^2 + |y_i - y'_i|^2 ),   x', y' = the embeddings of the frozen teacher

    With the start weights as the teacher, fine-tuning preserves their embeddings. The idea is that of LDIFS, "l2
    distance in feature space" (Mukhoti et al. 2023, arXiv 2308.13320), of which we read the abstract only. `distill`
    keeps the similarities only: both towers may turn together.
    """

    learns_temperature = False
    needs = ("teacher",)

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        teacher, part = embeddings.teacher, embeddings.part
        assert teacher is not None
        distances = []
        for own, given in ((embeddings.image, teacher.image), (embeddings.text, teacher.text)):
            if own.shape != given.shape:
                raise UserError(
                    f"objective.feature_distill: the teacher's embeddings have the width {given.shape[1]}, and the "
                    f"run's {own.shape[1]}; allowed: a model.teacher of equal width"
                )
            distances.append((own[part.rows] - given[part.rows]).square().sum())
        return part.sum(distances[0] + distances[1]) / len(embeddings.image), {}


class ClipRefineTerm(Term):
    """CLIP-Refine: random feature alignment and hybrid contrastive distillation (Yamaguchi et al., CVPR 2025).

        L = lambda_rand L_RaFA + lambda_kd L_HyCD
        L_RaFA = 1/(B E) sum_i ( |x_i - r_i|^2 + |y_i - r_i|^2 ),   r_i ~ N(0, I), shared by image and text
        L_HyCD = T^2 / (2 B) sum_i ( KL(a_i || p_i) + the same from text to image ),  a_i = alpha e_i + (1 - alpha) q_i
        p_ij = softmax_j( <x_i, y_j> / T ),   q_ij = the same of the frozen teacher,   e_i = 1 at the pair (i, i)

    The form and the defaults are those of the authors' code; the paper divides the sum in L_RaFA by 2 B instead of B E,
    so its L_RaFA is E/2 times as large. The authors start from pretrained weights and train embeddings that are not
    normalised, at T = 1 and without a learned temperature; they evaluate normalised embeddings. In clipx, set
    model.normalise=evaluation, so that the teacher does not normalise either, and start from model.init or published
    weights.

    r_i depends only on the step, the position i in the global batch, and the kind of device. 4 matrix products forward
    (2 of them for the teacher), 4 backward.

    Args:
        alpha: weight of the pair itself in the targets a_i.
        T: temperature of both softmaxes; the run's temperature is not used.
        lambda_rand: weight of L_RaFA.
        lambda_kd: weight of L_HyCD.
    """

    learns_temperature = False
    needs = ("teacher", "progress")

    def __init__(self, alpha: float = 0.5, T: float = 1.0, lambda_rand: float = 1.0, lambda_kd: float = 1.0) -> None:
        check_range("objective.clip_refine.alpha", alpha, SHARE)
        check_range("objective.clip_refine.T", T, POSITIVE)
        self.alpha, self.T, self.lambda_rand, self.lambda_kd = alpha, T, lambda_rand, lambda_kd

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        x, y = embeddings.image, embeddings.text
        generator = rng.generator(progress.step, STREAM, device=x.device)
        r = torch.randn(x.shape, generator=generator, dtype=torch.float64, device=x.device).to(x)
        rafa = ((x - r).square() + (y - r).square()).mean()
        return self.lambda_rand * rafa + self.lambda_kd * self._hycd(embeddings), {}

    def _hycd(self, embeddings: Embeddings) -> Tensor:
        teacher = embeddings.teacher
        assert teacher is not None

        def loss(tile: slice, x: Tensor, y: Tensor) -> Tensor:
            total, sides = x.new_zeros(()), ((x, teacher.image), (y, teacher.text))
            for (a, teacher_a), (b, teacher_b) in (sides, sides[::-1]):
                target = (1 - self.alpha) * (dot_products(teacher_a[tile], teacher_b) / self.T).softmax(dim=1)
                target.diagonal(offset=tile.start).add_(self.alpha)
                log_p = (dot_products(a[tile], b) / self.T).log_softmax(dim=1)
                total = total + (torch.xlogy(target, target) - target * log_p).sum()
            return total

        B = len(embeddings.image)
        return self.T**2 * sum_over_rows(loss, (embeddings.image, embeddings.text), embeddings.part) / (2 * B)


class AlignClipTerm(Term):
    """AlignCLIP's intra-modality separation, weighted by the texts' distance (Eslami and de Melo, ICLR 2025).

        L = L_image + L_text,   L_image = -1/B sum_i log( e^{l_ii} / sum_j e^{l_ij} )
        l_ij = <x_i, x_j> (1 - <t_i, t_j>) / tau  for j != i,   l_ii = <x_i, y_i> / tau

    with t [B, E'] = the text embeddings of a frozen teacher; L_text uses <y_i, y_j>. Images with different texts are
    pushed apart, images with the same text are not. The authors take t from a sentence encoder (SBERT); here it is the
    text tower of model.teacher. Their method also shares the towers' transformer, which this term does not do. Mean
    over the batch, summed over the modalities.

    The authors' loss is `clip` summed over both directions plus 0.5 times this term: objective.clip.average=false
    objective.align_clip.weight=0.5. 3 matrix products forward, 4 backward.

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
            sides = [z for z, used in ((x, self.images), (y, self.texts)) if used]
            total = -len(sides) * own.sum()
            for z in sides:
                logits = weights * dot_products(z[tile], z)
                total = total + logits.diagonal_scatter(own, offset=tile.start).logsumexp(dim=1).sum()
            return total

        inputs = embeddings.image, embeddings.text, embeddings.scale
        return sum_over_rows(loss, inputs, embeddings.part) / len(embeddings.image), {}
