"""NUCLR: a global contrastive loss with learned popularities zeta (paper 3, Algorithm 1).

One direction; anchors images, contrasted texts with the texts' zeta and xi. Text anchors likewise, with the
images' zeta and xi and a u of their own. n training pairs, B the global batch, D_ij = s_ij - s_ii.

    g_i = 1/(B-1) sum_{j != i} exp((D_ij - zeta_j)/tau)
    u_i <- g_i on the first visit of sample i, else (1 - gamma) u_i + gamma g_i
    gradient = (1/B) sum_i [1/(u_i + exp(-xi/tau)/(n-1))] 1/(B-1) sum_{j != i} exp((D_ij - zeta_j)/tau) grad D_ij
    G_j = 1/n - 1/(n-1) (1/B) sum_i [1/(u_i + exp(-zeta_i/tau)/(n-1))] exp((D_ij - zeta_j)/tau)     i = j included
    zeta_j <- zeta_j - eta G_j         after the freeze period
    xi = max(xi0, max_j zeta_j)        over all n

The own pair i = j has weight 1/B in G_j, because j is always in its own batch; in the full objective (5) it has 1/n.
Once pairs are well separated this term outweighs the others, so that zeta_j follows how probable j's own pair is,
which is highest where few others resemble it, rather than its popularity. `variant: unbiased` is Algorithm 1 with the
expectation of G_j set right:

    G_j = 1/n - 1/n sum_{i != j} [1/(u_i + exp(-zeta_i/tau)/(n-1))] exp((D_ij - zeta_j)/tau) / (B-1)
              - 1/n [1/(u_j + exp(-zeta_j/tau)/(n-1))] exp(-zeta_j/tau) / (n-1)

`variant: code` is the authors' script instead: xi at the end of each epoch, and zeta_j moves against an average
of n G_j with 0.9 on the new one, by eta (x 0.1 for images), cosine per epoch, /10 from half and /100 from
three quarters of the run on. Its u sums where Algorithm 1 averages, which is the same after scaling. Its
gradient in several processes, 1/world of the right one, is not reproduced.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from clipx.errors import UserError
from clipx.objectives import moving_average as ma
from clipx.objectives.base import Columns, Term
from clipx.types import Embeddings, Progress
from clipx.utils.registry import lookup

NEW_SHARE = 0.9  # of the new gradient in its average, authors' script
ETA = 5e-6  # on n G_j, authors' script
IMAGE_FACTOR = 0.1  # on the images' learning rate, authors' script
SIDES = (("image", "text"), ("text", "image"))  # anchors, contrasted


def batch_mean(ratios: Tensor, n: int) -> Tensor:
    """Over the batch's anchors, [B, B] -> [B], the own one among them."""
    return ratios.mean(dim=0)


def sample_mean(ratios: Tensor, n: int) -> Tensor:
    """Unbiased for the mean over all n anchors, [B, B] -> [B]: the own one is one of n, the others are a sample."""
    own = ratios.diagonal()
    others = ratios.masked_fill(torch.eye(len(ratios), dtype=torch.bool, device=ratios.device), 0.0)
    return ((n - 1) * others.sum(dim=0) / (len(ratios) - 1) + own) / n


# name -> is it the authors' script?, mean of G_j over anchors
VARIANTS = {"paper": (False, batch_mean), "code": (True, batch_mean), "unbiased": (False, sample_mean)}


class NuclrTerm(Term):
    """Its value is (tau/B) sum_i log(u_i + exp(-xi/tau)/(n-1)) + mean zeta of both directions.

    Its gradient is the estimator above. Needs all 2 B^2 differences, [B, B] for each direction.

    Args:
        num_samples: n.
        gamma: weight of the new value in the moving average u (paper: 0.8).
        zeta0: where every zeta starts (paper: -0.05 on CC3M, 0 on CC12M).
        xi0: least xi; the paper asks for xi0 > zeta0.
        eta: step size of zeta, on G_j; in variant code on n G_j. None: the authors' 5e-6 on n G_j, which is 5e-6 n on
            G_j (13.6 on CC3M).
        freeze_steps: zeta stays for these first steps
        freeze_epochs: and for these first epochs (paper: 5).
        variant: paper | code | unbiased.
    """

    learns_temperature = False

    def __init__(
        self,
        num_samples: int,
        gamma: float = 0.8,
        zeta0: float = -0.05,
        xi0: float = 0.0,
        eta: float | None = None,
        freeze_steps: int = 0,
        freeze_epochs: int = 0,
        variant: str = "paper",
    ) -> None:
        ma.check_size("nuclr", num_samples)
        ma.check_gamma("nuclr", gamma)
        self.code, self.column_mean = lookup(VARIANTS, variant, "objective.nuclr.variant")
        if eta is None:
            eta = ETA if self.code else ETA * num_samples
        for key, value in (("eta", eta), ("freeze_steps", freeze_steps), ("freeze_epochs", freeze_epochs)):
            if value < 0:
                raise UserError(f"objective.nuclr.{key}={value} is out of range; allowed: 0 or more")
        self.n, self.gamma, self.xi0, self.eta = num_samples, gamma, xi0, eta
        self.freeze_steps, self.freeze_epochs = freeze_steps, freeze_epochs
        initial = {"seen": 0.0, "log_u_image": 0.0, "log_u_text": 0.0, "zeta_image": zeta0, "zeta_text": zeta0}
        if self.code:
            initial |= {"gradient_image": 0.0, "gradient_text": 0.0}
        self.columns = {f"nuclr_{name}": value for name, value in initial.items()}
        self.state = {"xi_image": xi0, "xi_text": xi0}

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        scale = embeddings.scale.detach()
        d = ma.differences(embeddings, "nuclr")
        seen = rows["nuclr_seen"]
        new = {"nuclr_seen": seen.new_ones(len(seen))}
        weights, values = [], []
        for (anchor, other), D in zip(SIDES, (d.image, d.text), strict=True):
            zeta = rows[f"nuclr_zeta_{other}"]
            logits = scale * (D - zeta)
            log_u = ma.updated(rows[f"nuclr_log_u_{anchor}"], ma.log_mean_of_others(logits), seen, self.gamma)
            log_own = -scale * self.state[f"xi_{other}"] - math.log(self.n - 1)
            log_denominator = torch.logaddexp(log_u, log_own)
            weights.append(ma.pair_weights(logits, log_denominator))
            values.append(log_denominator.mean() / scale + zeta.mean())
            new[f"nuclr_log_u_{anchor}"] = log_u
            new |= self._zeta(other, rows, logits, log_u, scale, progress)
        return ma.surrogate(d, weights, values[0] + values[1], embeddings.scale), new

    def _zeta(
        self, side: str, rows: Mapping[str, Tensor], logits: Tensor, log_u: Tensor, scale: Tensor, progress: Progress
    ) -> dict[str, Tensor]:
        """New zeta [B] of the contrasted side, and in variant code the averaged gradient."""
        average = f"nuclr_gradient_{side}"
        zeta = rows[f"nuclr_zeta_{side}"]
        if progress.step < self.freeze_steps or progress.epoch < self.freeze_epochs:
            return {f"nuclr_zeta_{side}": zeta} | ({average: rows[average]} if self.code else {})
        log_denominator = torch.logaddexp(log_u, -scale * zeta - math.log(self.n - 1))
        ratios = (logits - log_denominator[:, None]).exp()  # [B, B], at most (B-1)/gamma; n-1 on the diagonal
        G = 1 / self.n - self.column_mean(ratios, self.n) / (self.n - 1)
        if not self.code:
            return {f"nuclr_zeta_{side}": zeta - self.eta * G}
        gradient = (1 - NEW_SHARE) * rows[average] + NEW_SHARE * self.n * G
        step = self.eta * decay(progress) * (IMAGE_FACTOR if side == "image" else 1.0)
        return {f"nuclr_zeta_{side}": zeta - step * gradient, average: gradient}

    def end_step(self, table: Columns) -> None:
        if not self.code:
            self._refresh(table)

    def end_epoch(self, table: Columns) -> None:
        if self.code:
            self._refresh(table)

    def notes(self, total_epochs: int) -> list[str]:
        lines = ma.few_epochs("nuclr", total_epochs)
        if self.freeze_epochs >= total_epochs:
            lines.append(f"objective.nuclr.freeze_epochs={self.freeze_epochs} of {total_epochs}: zeta is never learned")
        return lines

    def _refresh(self, table: Columns) -> None:
        sides = ("image", "text")
        self.state = {f"xi_{side}": max(self.xi0, table.max(f"nuclr_zeta_{side}")) for side in sides}


def decay(progress: Progress) -> float:
    """Factor on zeta's learning rate in variant code: cosine per epoch, and /10 from half, /100 from 3/4 of the run."""
    done = progress.epoch / progress.total_epochs
    drop = 100 if done >= 0.75 else 10 if done >= 0.5 else 1
    return 0.5 * (1 + math.cos(math.pi * done)) / drop
