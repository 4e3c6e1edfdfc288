"""DRRho-CLIP: a global contrastive loss relative to a reference model (Wei et al. 2025, arXiv 2505.06699).

This is `fastclip_v3` with the similarities of the trained model minus those of the reference, model.teacher:

    D_ij = (s_ij - s_ii) - (s'_ij - s'_ii),   g_i = 1/(B-1) sum_{j != i} exp(D_ij / tau)
    L = tau/B sum_i log(eps + g_i) + rho tau, added over both directions

with similarities s of the model and s' of the reference, and the model's tau. B, u and gamma are explained in
fastclip.py.
A negative weighs less if the reference, too, gives it a large similarity to the anchor. s - s' is computed as the dot
product of [x, x'] and [y, -y'], whose width is the sum of both models' widths.

The defaults are those of the authors' script: eps = 1e-4, rho = 11, and gamma decays from 1 to min(1, 4.177 T^-0.7265)
over the T epochs of the run. The script keeps tau at 0.01: temperature.kind=fixed temperature.tau=0.01.
"""

from dataclasses import replace

import torch

from clipx.objectives.base import Rows, TermOutput
from clipx.objectives.per_sample.fastclip import FastClipV3Term, decayed_gamma
from clipx.types import Embeddings, Progress


class DrrhoTerm(FastClipV3Term):
    """The value is tau/B sum_i log(eps + u_i) + rho tau, added over both directions.

    Args:
        gamma: weight of the new value in the moving average, after its decay from 1; null: min(1, 4.177 T^-0.7265).
        gamma_decay_epochs: number of epochs in which gamma decays; null: the whole run.
        eps: added to u_i.
        rho: a larger rho gives a smaller learned tau.
    """

    name = "drrho"
    needs = ("progress", "teacher")

    def __init__(
        self,
        num_samples: int,
        gamma: float | None = None,
        gamma_decay_epochs: int | None = None,
        eps: float = 1e-4,
        rho: float = 11.0,
    ) -> None:
        super().__init__(num_samples, 1.0 if gamma is None else gamma, gamma_decay_epochs, eps, rho)
        self.given_gamma = gamma

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        reference = embeddings.teacher
        assert reference is not None
        image = torch.cat([embeddings.image, reference.image], dim=1)
        text = torch.cat([embeddings.text, -reference.text], dim=1)
        return super().__call__(replace(embeddings, image=image, text=text), rows, progress)

    def gamma_of(self, progress: Progress) -> float:
        gamma = self.given_gamma
        if gamma is None:
            gamma = min(1.0, 4.177 * progress.total_epochs**-0.7265)
        epochs = self.gamma_decay_epochs
        return decayed_gamma(gamma, progress.epoch, progress.total_epochs if epochs is None else epochs)
