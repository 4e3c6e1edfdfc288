"""SogCLR: the global contrastive loss by moving averages (paper 3, baseline; Yuan et al. 2022).

    D_ij = s_ij - s_ii                                            anchors: images; texts likewise, with their own u
    g_i = 1/(B-1) sum_{j != i} exp(D_ij / tau)
    u_i <- g_i on the first visit of sample i, else (1 - gamma) u_i + gamma g_i
    gradient = (1/B) sum_i 1/u_i 1/(B-1) sum_{j != i} exp(D_ij / tau) grad D_ij      both directions added

NUCLR with zeta = 0 and without its xi term.
"""

from collections.abc import Mapping

from torch import Tensor

from clipx.objectives import moving_average as ma
from clipx.objectives.base import Term
from clipx.types import Embeddings, Progress


class SogclrTerm(Term):
    """Its value is (tau/B) sum_i log u_i of both directions, its gradient the estimator above.

    Args:
        gamma: weight of the new value in the moving average (paper 3: 0.8).
        num_samples: n.
    """

    learns_temperature = False

    def __init__(self, num_samples: int, gamma: float = 0.8) -> None:
        ma.check_size("sogclr", num_samples)
        ma.check_gamma("sogclr", gamma)
        self.gamma = gamma
        self.columns = {"sogclr_seen": 0.0, "sogclr_log_u_image": 0.0, "sogclr_log_u_text": 0.0}

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        scale = embeddings.scale.detach()
        d = ma.differences(embeddings, "sogclr")
        seen = rows["sogclr_seen"]
        new = {"sogclr_seen": seen.new_ones(len(seen))}
        weights = []
        for side, D in (("image", d.image), ("text", d.text)):
            logits = scale * D
            log_u = ma.updated(rows[f"sogclr_log_u_{side}"], ma.log_mean_of_others(logits), seen, self.gamma)
            weights.append(ma.pair_weights(logits, log_u))
            new[f"sogclr_log_u_{side}"] = log_u
        value = (new["sogclr_log_u_image"] + new["sogclr_log_u_text"]).mean() / scale
        return ma.surrogate(d, weights, value, embeddings.scale), new

    def notes(self, total_epochs: int) -> list[str]:
        return ma.few_epochs("sogclr", total_epochs)
