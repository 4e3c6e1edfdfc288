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

from clipx.objectives.per_sample.moving_average import MovingAverageTerm


class SogclrTerm(MovingAverageTerm):
    """The value is (tau/B) sum_i log d_i, added over both directions. The gradient is the estimator above.

    Args:
        gamma: weight of the new value in the moving average (paper 3: 0.8).
        own_pair: add the pair itself to the denominator (true: paper 3; false: SogCLR's code).
    """

    name = "sogclr"

    def __init__(self, num_samples: int, gamma: float = 0.8, own_pair: bool = False) -> None:
        super().__init__(num_samples, gamma)
        self.log_eps = -math.log(num_samples - 1) if own_pair else -math.inf
