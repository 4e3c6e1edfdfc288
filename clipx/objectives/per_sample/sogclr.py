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

This is NUCLR with zeta = 0. NUCLR's xi term is then the pair itself: with own_pair xi is 0, else there is no xi term.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

import clipx.objectives.per_sample.moving_average as ma
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.types import Embeddings, Progress


class SogclrTerm(Term):
    """The value is (tau/B) sum_i log d_i, added over both directions. The gradient is the estimator above.

    Args:
        gamma: weight of the new value in the moving average (paper 3: 0.8).
        own_pair: add the pair itself to the denominator (true: paper 3; false: SogCLR's code).
    """

    name = "sogclr"
    learns_temperature = False

    def __init__(self, num_samples: int, gamma: float = 0.8, own_pair: bool = False) -> None:
        ma.check_settings(self.name, num_samples, gamma)
        self._set(gamma, -math.log(num_samples - 1) if own_pair else -math.inf)

    def _set(self, gamma: float, log_eps: float) -> None:
        """Set gamma, the logarithm of the constant d_i - u_i, and the columns."""
        self.gamma, self.log_eps = gamma, log_eps
        self.columns = {f"{self.name}_{column}": 0.0 for column in ("seen", "log_u_image", "log_u_text")}

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        contrast = ma.Contrast(embeddings, self.name)
        log_d, new = self.update(contrast.log_g, rows, progress)
        value = (log_d["image"].mean() + log_d["text"].mean()) / contrast.scale
        return contrast.surrogate_loss(value, log_d)[0], new

    def update(
        self, log_g: Mapping[str, Tensor], rows: Rows, progress: Progress
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return side of the anchors -> log d [B], and the new values of the columns."""
        seen, gamma = rows[f"{self.name}_seen"], self.gamma_of(progress)
        new, log_d = {f"{self.name}_seen": torch.ones_like(seen)}, {}
        for side, found in log_g.items():
            log_u = ma.update_log_u(rows[f"{self.name}_log_u_{side}"], found, seen, gamma)
            log_d[side] = torch.logaddexp(log_u, log_u.new_tensor(self.log_eps))
            new[f"{self.name}_log_u_{side}"] = log_u
        return log_d, new

    def gamma_of(self, progress: Progress) -> float:
        """Return gamma of the current epoch."""
        return self.gamma

    def notes(self, total_epochs: int) -> list[str]:
        return ma.single_epoch_note(self.name, total_epochs)
