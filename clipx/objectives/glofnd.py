"""GloFND: false negatives found by a learned threshold per sample (Balmaseda et al., ICML 2025, arXiv 2502.20612).

An image anchor i leaves out texts j whose similarity is above its threshold lambda_i: its false negatives. The
threshold is the (1 - alpha) quantile of the similarities to all other samples, learned by gradient steps on the
quantile loss. The rest is fastclip_v1. Text anchors have their own lambda, and use s_ji. From epoch `start_epoch` on:

    G = alpha - share of the B - 1 others of the batch with s_ij > lambda_i
    m <- 0.9 m + 0.1 G,   v <- 0.98 v + 0.02 G^2
    lambda_i <- clamp( lambda_i - eta m' / (sqrt(v') + 1e-8), -1, 1 ),   initially 1
    N_i = {j != i: s_ij <= lambda_i},   g_i = 1/|N_i| sum_{j in N_i} exp(D_ij / tau)

with D_ij = s_ij - s_ii, and in epoch e m' = m / (1 - 0.9^(e+1)) and v' = v / (1 - 0.98^(e+1)). Before `start_epoch`,
N_i has all others. u_i is a moving average of g_i, and the gradient is that of fastclip_v1. A step uses the thresholds
that it has just updated. Formulas, constants and defaults follow the authors' code (bimodal/src/fast_clip) and the
values at the head of its script for CC3M. Its README has alpha = 5e-4 from epoch 15 on with fastclip_v1, and 1e-3 from
epoch 20 on with v3, which is not included. In place of 1e-8 their code in effect adds FastCLIP's eps, 1e-14; with the
default alpha, this changes a step by less than 0.1%. An anchor whose N_i is empty has g_i = 0, where the authors' code
divides by zero.

The two counts take two more matrix products than fastclip_v1.
"""

import torch
from torch import Tensor

from clipx.config.setting import AT_LEAST_0, OPEN_SHARE, check_range
from clipx.objectives.base import Rows, TermOutput
from clipx.objectives.fastclip import FastClipV1Term
from clipx.objectives.similarity import tiles
from clipx.objectives.sogclr import Contrast, Kept, check_batch, moments
from clipx.types import Embeddings, Progress

# from the authors' code
BETAS, EPS_LAMBDA = (0.9, 0.98), 1e-8
START = 15 / 37  # part of the run before the thresholds are learned


class GlofndTerm(FastClipV1Term):
    """The value is tau/B sum_i log(eps + u_i), added over both directions.

    Args (the others are those of fastclip_v1):
        alpha: share of all samples that are false negatives of an anchor.
        eta: step size of lambda.
        start_epoch: first epoch in which thresholds are learned and used; null: after 15/37 of the run.
    """

    name = "glofnd"

    def __init__(
        self,
        num_samples: int,
        gamma: float = 0.2,
        gamma_decay_epochs: int | None = None,
        eps: float = 1e-14,
        alpha: float = 1e-4,
        eta: float = 0.05,
        start_epoch: int | None = None,
    ) -> None:
        super().__init__(num_samples, gamma, gamma_decay_epochs, eps)
        check_range(f"objective.{self.name}.alpha", alpha, OPEN_SHARE)
        check_range(f"objective.{self.name}.eta", eta, AT_LEAST_0)
        check_range(f"objective.{self.name}.start_epoch", start_epoch or 0, AT_LEAST_0)
        self.alpha, self.eta, self.start_epoch = alpha, eta, start_epoch
        self.add_columns({"lambda": 1.0, "m": 0.0, "v": 0.0})

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        check_batch(self.name, len(embeddings.image))
        thresholds = {column: rows[column] for column in self.columns}  # unchanged before the first epoch of learning
        kept = None
        if progress.epoch >= self._start_epoch(progress.total_epochs):
            thresholds |= self._learned(embeddings, rows, progress.epoch)
            kept = self._kept(embeddings, thresholds)
        contrast = Contrast(embeddings, self.name, kept=kept)
        log_d, new = self.update(contrast.log_g, rows, progress)
        value = (log_d["image"].mean() + log_d["text"].mean()) / contrast.scale
        return contrast.surrogate_loss(value, log_d)[0], thresholds | new

    def notes(self, total_epochs: int) -> list[str]:
        lines = super().notes(total_epochs)
        if (start := self._start_epoch(total_epochs)) >= total_epochs:
            lines.append(f"objective.{self.name}: no threshold is learned, because the run ends before epoch {start}")
        return lines

    def _start_epoch(self, total_epochs: int) -> int:
        return round(START * total_epochs) if self.start_epoch is None else self.start_epoch

    def _learned(self, embeddings: Embeddings, rows: Rows, epoch: int) -> dict[str, Tensor]:
        """Return lambda, m and v of both sides after the step of this batch."""
        new = {}
        for side, above in self._above(embeddings, rows).items():
            threshold, m, v = (f"{self.name}_{column}_{side}" for column in ("lambda", "m", "v"))
            G = self.alpha - above / (len(above) - 1)
            new[m], new[v], mean, square = moments(rows[m], rows[v], G, BETAS, epoch)
            new[threshold] = (rows[threshold] - self.eta * (mean / (square.sqrt() + EPS_LAMBDA))).clamp(-1, 1)
        return new

    def _kept(self, embeddings: Embeddings, rows: Rows) -> dict[str, Kept]:
        others = len(embeddings.image) - 1
        above = self._above(embeddings, rows)
        return {side: Kept(self._largest(embeddings, rows, side), others - above[side]) for side in above}

    def _largest(self, embeddings: Embeddings, rows: Rows, side: str) -> Tensor:
        """Return the logit at the threshold of each anchor, [B]."""
        return embeddings.scale.detach() * rows[f"{self.name}_lambda_{side}"]

    def _above(self, embeddings: Embeddings, rows: Rows) -> dict[str, Tensor]:
        """Return side of the anchors -> how many others of the batch are above the threshold, [B]."""
        pairs = embeddings.image.detach(), embeddings.text.detach(), embeddings.scale.detach()
        image, text = (self._largest(embeddings, rows, side) for side in ("image", "text"))
        above = torch.zeros(2, len(image), dtype=image.dtype, device=image.device)
        for start, (z,) in tiles(*pairs, part=embeddings.part):
            z.diagonal(offset=start).fill_(-torch.inf)  # the pair itself is no negative
            above[0, start : start + len(z)] = (z > image[start : start + len(z), None]).sum(dim=1)
            above[1] += (z > text).sum(dim=0)
        return dict(zip(("image", "text"), embeddings.part.sum(above), strict=True))
