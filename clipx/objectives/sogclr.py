"""SogCLR: a global contrastive loss with moving averages (Yuan et al. 2022; a baseline of paper 3).

    D_ij = s_ij - s_ii                                            for image anchors; text anchors have their own u
    g_i = 1/(B-1) sum_{j != i} exp(D_ij / tau)
    u_i <- g_i on the first visit of sample i, else (1 - gamma) u_i + gamma g_i
    gradient = (1/B) sum_i 1/u_i 1/(B-1) sum_{j != i} exp(D_ij / tau) grad D_ij      both directions added

This is NUCLR with zeta = 0 and without its xi term.
"""

import clipx.objectives.moving_average as ma
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.types import Embeddings, Progress


class SogclrTerm(Term):
    """The value is (tau/B) sum_i log u_i, added over both directions. The gradient is the estimator above.

    Args:
        num_samples: n, number of training pairs.
        gamma: weight of the new value in the moving average (paper 3: 0.8).

    Raises:
        UserError: gamma out of range, or n < 2.
    """

    learns_temperature = False

    def __init__(self, num_samples: int, gamma: float = 0.8) -> None:
        ma.check_settings("sogclr", num_samples, gamma)
        self.gamma = gamma
        self.columns = {"sogclr_seen": 0.0, "sogclr_log_u_image": 0.0, "sogclr_log_u_text": 0.0}

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        scale = embeddings.scale.detach()
        similarity, D_image, D_text = ma.differences(embeddings, "sogclr")
        seen = rows["sogclr_seen"]
        new = {"sogclr_seen": seen.new_ones(len(seen))}
        weights = []
        for side, D in (("image", D_image), ("text", D_text)):
            logits = scale * D
            log_g = ma.log_mean_of_negatives(logits)
            log_u = ma.update_log_u(rows[f"sogclr_log_u_{side}"], log_g, seen, self.gamma)
            weights.append(ma.pair_weights(logits, log_u))
            new[f"sogclr_log_u_{side}"] = log_u
        value = (new["sogclr_log_u_image"] + new["sogclr_log_u_text"]).mean() / scale
        return ma.surrogate_loss(similarity, weights, value, embeddings.scale), new

    def notes(self, total_epochs: int) -> list[str]:
        return ma.single_epoch_note("sogclr", total_epochs)
