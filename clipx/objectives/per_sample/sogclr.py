"""SogCLR: a global contrastive loss with moving averages (Yuan et al. 2022; a baseline of paper 3).

n is the number of training pairs, B the global batch size. For image anchors, D_ij = s_ij - s_ii; text anchors use s_ji
and have their own u. Both directions are added. The loss exists in two forms:

    own_pair: true     (tau/n) sum_i log sum_j exp(D_ij / tau)          with the pair itself: exp(0) at j = i
    own_pair: false    (tau/n) sum_i log sum_{j != i} exp(D_ij / tau)   without the pair itself

Paper 3 states the first (appendix A, "global contrastive loss"; eq. (3) with a uniform q, remark 2). SogCLR's released
code computes the second. They differ most for a pair that is well separated from all others: in the first form its
gradient vanishes, in the second the weights of its negatives still sum to about 1. Algorithm:

    g_i = 1/(B-1) sum_{j != i} exp(D_ij / tau)
    u_i <- g_i on the first visit of sample i, else (1 - gamma) u_i + gamma g_i
    d_i = u_i + exp(0)/(n-1)   with own_pair, else u_i
    gradient = (1/B) sum_i 1/d_i 1/(B-1) sum_{j != i} exp(D_ij / tau) grad D_ij

This is NUCLR with zeta = 0. NUCLR's xi term is then the pair itself: xi = 0 with own_pair, no xi term without.
"""

import math

import torch

import clipx.objectives.per_sample.moving_average as ma
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.types import Embeddings, Progress


class SogclrTerm(Term):
    """The value is (tau/B) sum_i log d_i, added over both directions. The gradient is the estimator above.

    Args:
        num_samples: n, number of training pairs.
        gamma: weight of the new value in the moving average (paper 3: 0.8).
        own_pair: add the pair itself to the denominator (true: paper 3; false: SogCLR's code).

    Raises:
        UserError: gamma out of range, or n < 2.
    """

    learns_temperature = False

    def __init__(self, num_samples: int, gamma: float = 0.8, own_pair: bool = False) -> None:
        ma.check_settings("sogclr", num_samples, gamma)
        self.gamma = gamma
        self.log_own = -math.log(num_samples - 1) if own_pair else -math.inf
        self.columns = {"sogclr_seen": 0.0, "sogclr_log_u_image": 0.0, "sogclr_log_u_text": 0.0}

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        scale = embeddings.scale.detach()
        contrast = ma.Contrast(embeddings, "sogclr")
        seen = rows["sogclr_seen"]
        new = {"sogclr_seen": seen.new_ones(len(seen))}
        log_d = {}
        for side, log_g in contrast.log_g.items():
            log_u = ma.update_log_u(rows[f"sogclr_log_u_{side}"], log_g, seen, self.gamma)
            log_d[side] = torch.logaddexp(log_u, log_u.new_tensor(self.log_own))
            new[f"sogclr_log_u_{side}"] = log_u
        value = (log_d["image"].mean() + log_d["text"].mean()) / scale
        return contrast.surrogate_loss(value, log_d)[0], new

    def notes(self, total_epochs: int) -> list[str]:
        return ma.single_epoch_note("sogclr", total_epochs)
