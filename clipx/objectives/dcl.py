"""Debiased contrastive loss (Chuang et al. 2020, eq. 8, as paper 3 uses it between image and text).

    L = 1/2 (L_image + L_text),   L_image = -1/B sum_i log( e^{s_ii/tau} / (e^{s_ii/tau} + Ng_i) )
    Ng_i = max( (sum_{j != i} e^{s_ij/tau} - tau_plus N e^{s_ii/tau}) / (1 - tau_plus),  N e^{-1/tau} ),   N = B - 1

with s = image @ text.T [B, B]; L_text has s_ji in place of s_ij. tau_plus is the share of other pairs that show the
same thing: Ng takes them out of the negatives. All in log space, as e^{1/tau} overflows float32 below tau = 0.012.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from clipx.errors import UserError
from clipx.objectives.base import Term
from clipx.objectives.similarity import Sum, logsumexp, off_diagonal, own_logits, softplus
from clipx.types import Embeddings, Progress


class DclTerm(Term):
    """Mean over the batch and both directions; 0 for B = 1, which has no negatives.

    Raises:
        UserError: tau_plus is not in 0..1, 1 excluded.
    """

    def __init__(self, tau_plus: float = 0.1) -> None:
        if not 0 <= tau_plus < 1:
            raise UserError(f"objective.dcl.tau_plus={tau_plus} is out of range; allowed: 0..1, 1 excluded")
        self.tau_plus = tau_plus
        self.log_tau_plus = math.log(tau_plus) if tau_plus > 0 else -math.inf

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        pairs = embeddings.image, embeddings.text, embeddings.scale
        own = own_logits(*pairs)
        if len(own) == 1:
            return 0 * own.sum(), {}
        images, texts = logsumexp(*pairs, (Sum(dim=1, adjust=off_diagonal), Sum(dim=0, adjust=off_diagonal)))
        return (self.direction(images, own, embeddings.scale) + self.direction(texts, own, embeddings.scale)) / 2, {}

    def direction(self, others: Tensor, own: Tensor, scale: Tensor) -> Tensor:
        """Mean loss of a direction from log sum_{j != i} e^{s_ij/tau} [B] and s_ii/tau [B]."""
        N = len(own) - 1
        share = self.log_tau_plus + math.log(N) + own - others  # log of what is taken out over the sum
        free = share < 0  # else nothing is left, and the lower bound of Ng holds
        left = others + torch.log(-torch.expm1(share.where(free, -1))) - math.log1p(-self.tau_plus)
        bound = math.log(N) - scale
        log_Ng = torch.maximum(left.where(free, -math.inf), bound)
        return softplus(log_Ng - own).mean()
