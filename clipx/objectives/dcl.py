"""Debiased contrastive loss (Chuang et al. 2020, eq. 8; paper 3 applies it between image and text).

    L = 1/2 (L_image + L_text),   L_image = -1/B sum_i log( e^{s_ii/tau} / (e^{s_ii/tau} + Ng_i) )
    Ng_i = max( (sum_{j != i} e^{s_ij/tau} - tau_plus N e^{s_ii/tau}) / (1 - tau_plus),  N e^{-1/tau} ),   N = B - 1

with s = image @ text.T [B, B] for a batch of B pairs; L_text uses s_ji instead of s_ij. tau_plus is the assumed share
of false negatives, which Ng removes from the sum. All sums are in log space, because e^{1/tau} overflows float32 for
tau < 0.0113.
"""

import math

import torch
from torch import Tensor

from clipx.config.setting import DECAY, check_range
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import EXCLUDE_POSITIVES, Reduction, logsumexp, positive_logits, softplus
from clipx.types import Embeddings, Progress


class DclTerm(Term):
    """Mean over the batch and both directions; 0 for B = 1, which has no negatives."""

    def __init__(self, tau_plus: float = 0.1) -> None:
        check_range("objective.dcl.tau_plus", tau_plus, DECAY)
        self.tau_plus = tau_plus
        self.log_tau_plus = math.log(tau_plus) if tau_plus > 0 else -math.inf

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        scale = embeddings.scale
        pairs = embeddings.image, embeddings.text, scale
        positives = positive_logits(*pairs)
        if len(positives) == 1:
            return 0 * positives.sum(), {}
        reductions = Reduction(1, EXCLUDE_POSITIVES), Reduction(0, EXCLUDE_POSITIVES)
        images, texts = logsumexp(*pairs, reductions, embeddings.part)
        return (self.direction(images, positives, scale) + self.direction(texts, positives, scale)) / 2, {}

    def direction(self, negatives: Tensor, positives: Tensor, scale: Tensor) -> Tensor:
        """Compute the mean loss of one direction from log sum_{j != i} e^{s_ij/tau} and s_ii/tau, both [B]."""
        N = len(positives) - 1
        log_ratio = self.log_tau_plus + math.log(N) + positives - negatives  # log(removed part / sum)
        has_rest = log_ratio < 0  # otherwise Ng removes the whole sum, and its lower bound applies
        log_debiased = negatives + torch.log(-torch.expm1(log_ratio.where(has_rest, -1))) - math.log1p(-self.tau_plus)
        log_Ng = torch.maximum(log_debiased.where(has_rest, -math.inf), math.log(N) - scale)
        return softplus(log_Ng - positives).mean()
