"""Uniformity of the pairs' centroids ("Closing the Modality Gap Aligns Group-Wise Semantics", ICLR 2026).

    L = log mean_{i < j} exp(-t |c_i - c_j|^2),   c_i = (x_i + y_i) / |x_i + y_i|

with the rows x_i of the image and y_i of the text embeddings (Grassucci et al., arXiv 2601.18525; the form is that of
the authors' code, with t = 2). Centroids are pushed apart, while pairs stay together. The paper's other term, the mean
squared distance of the pairs, is 2 + 2 `positive` on unit vectors. `objective=clip_centroid` adds both to CLIP's loss
with weight 1, as the complete loss of the ablations in the authors' main.py does. Their config.yaml selects weights
that change: that of the distance grows from 1 to 2 in the second half of the run, that of the uniformity falls from 1
to 0 between 20% and 70%. This is not included.

As |c_i - c_j|^2 = 2 - 2 <c_i, c_j>, this is a log-sum-exp of similarities: one matrix product forward, three backward.
"""

import math

import torch.nn.functional as F

from clipx.config.setting import POSITIVE, check_range
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import EXCLUDE_POSITIVES, Reduction, logsumexp
from clipx.objectives.sogclr import check_batch
from clipx.types import Embeddings, Progress


class CentroidUniformityTerm(Term):
    """Return the log of the mean Gaussian potential between centroids; at most 0. Needs B >= 2.

    Args:
        t: inverse width of the potential.
    """

    learns_temperature = False

    def __init__(self, t: float = 2.0) -> None:
        check_range("objective.centroid_uniformity.t", t, POSITIVE)
        self.t = t

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        B = len(embeddings.image)
        check_batch("centroid_uniformity", B)
        c = F.normalize(embeddings.image + embeddings.text, dim=1)
        scale = c.new_full((), 2 * self.t)
        (over_others,) = logsumexp(c, c, scale, (Reduction(1, EXCLUDE_POSITIVES),), embeddings.part)
        return over_others.logsumexp(dim=0) - 2 * self.t - math.log(B * (B - 1)), {}
