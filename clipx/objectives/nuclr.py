"""NUCLR: a global contrastive loss with learned popularities zeta (paper 3, Algorithm 1).

Image anchors contrast with texts and use the texts' zeta and xi. Text anchors likewise use the images' zeta and xi,
with their own u. n is the number of training pairs, B the global batch size, D_ij = s_ij - s_ii. For one direction:

    g_i = 1/(B-1) sum_{j != i} exp((D_ij - zeta_j)/tau)
    u_i <- g_i on the first visit of sample i, else (1 - gamma) u_i + gamma g_i
    gradient = (1/B) sum_i [1/(u_i + exp(-xi/tau)/(n-1))] 1/(B-1) sum_{j != i} exp((D_ij - zeta_j)/tau) grad D_ij
    G_j = 1/n - 1/(n-1) (1/B) sum_i [1/(u_i + exp(-zeta_i/tau)/(n-1))] exp((D_ij - zeta_j)/tau)     i = j included
    zeta_j <- zeta_j - eta G_j         after the freeze period
    xi = max(xi0, max_j zeta_j)        over all n

The positive pair i = j has weight 1/B in G_j, because j is always in its own batch. Its weight in the full objective,
eq. (5), is 1/n. Once the pairs are well separated, the positive pair dominates G_j. zeta_j then no longer measures the
popularity of j, but how well the model separates pair j, which is best where few other pairs resemble pair j.

`variant: unbiased` is Algorithm 1 with a G_j whose expectation is correct:

    G_j = 1/n - 1/n sum_{i != j} [1/(u_i + exp(-zeta_i/tau)/(n-1))] exp((D_ij - zeta_j)/tau) / (B-1)
              - 1/n [1/(u_j + exp(-zeta_j/tau)/(n-1))] exp(-zeta_j/tau) / (n-1)

`variant: code` follows the authors' script. It updates xi at the end of each epoch, and moves zeta_j against a moving
average of n G_j with weight 0.9 on the new value; the first update of a sample takes the whole gradient. The step size
eta (times 0.1 for images) follows a cosine from the end of the freeze period to the last epoch and changes once per
epoch; it is also divided by 10 after half and by 100 after three quarters of the run. In the
script, u averages sums over j instead of means; after scaling the result is equal. On several processes, the script
divides the gradient by their number once too often; clipx does not reproduce this error.
"""

import math

import torch
from torch import Tensor

from clipx.config.setting import AT_LEAST_0, check_range
from clipx.errors import UserError
from clipx.objectives.base import Rows, TermOutput
from clipx.objectives.sogclr import SIDES, Contrast, MovingAverageTerm
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Progress
from clipx.utils.registry import lookup

# from the authors' script
ETA = 5e-6  # default step size on n G_j
NEW_GRADIENT_WEIGHT = 0.9  # variant code: weight of the new gradient in its moving average
IMAGE_FACTOR = 0.1  # variant code: factor on the step size for images


def batch_mean(negatives: Tensor, positives: Tensor, n: int) -> Tensor:
    """Average over the anchors of the batch, [B], from one positive and the sum over B - 1 negatives, [B] each."""
    return (negatives + positives) / len(negatives)


def unbiased_mean(negatives: Tensor, positives: Tensor, n: int) -> Tensor:
    """Estimate the mean over all n anchors without bias, [B], from one positive and the sum over B - 1 negatives."""
    return ((n - 1) * negatives / (len(negatives) - 1) + positives) / n


# variant -> (follows the authors' script, mean over anchors in G_j)
VARIANTS = {"paper": (False, batch_mean), "code": (True, batch_mean), "unbiased": (False, unbiased_mean)}


class NuclrTerm(MovingAverageTerm):
    """The value is (tau/B) sum_i log(u_i + exp(-xi/tau)/(n-1)) + (1/B) sum_j zeta_j, added over both directions.

    The gradient is the estimator above.

    Args:
        gamma: weight of the new value in the moving average u (paper: 0.8).
        zeta0: initial value of every zeta (paper: -0.05 on CC3M, 0 on CC12M).
        xi0: lower bound of xi, not below zeta0; the paper has xi0 > zeta0.
        eta: step size of zeta, a factor on G_j, or on n G_j with variant code. null: the authors' 5e-6 on n G_j, which
            equals 5e-6 n on G_j (13.6 on CC3M).
        freeze_steps: number of initial steps without updates of zeta.
        freeze_epochs: number of initial epochs without updates of zeta (paper: 5).
        variant: paper | code | unbiased.
    """

    name = "nuclr"
    needs = ("progress",)

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
        super().__init__(num_samples, gamma)
        self.code, self.anchor_mean = lookup(VARIANTS, variant, "objective.nuclr.variant")
        if eta is None:
            eta = ETA if self.code else ETA * num_samples
        for key, value in (("eta", eta), ("freeze_steps", freeze_steps), ("freeze_epochs", freeze_epochs)):
            check_range(f"objective.nuclr.{key}", value, AT_LEAST_0)
        if xi0 < zeta0:
            raise UserError(
                f"objective.nuclr.xi0={xi0:g} is below objective.nuclr.zeta0={zeta0:g}; allowed: {zeta0:g} or more"
            )
        self.n, self.xi0, self.eta = num_samples, xi0, eta
        self.freeze_steps, self.freeze_epochs = freeze_steps, freeze_epochs
        self.add_columns({"zeta": zeta0, "gradient": 0.0} if self.code else {"zeta": zeta0})
        self.state: dict[str, float | Tensor] = {"xi_image": xi0, "xi_text": xi0}

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        scale = embeddings.scale.detach()
        zeta = {side: rows[f"nuclr_zeta_{side}"] for side in ("image", "text")}
        contrast = Contrast(embeddings, "nuclr", zeta)
        log_u, new = self.averages(contrast.log_g, rows, progress)
        log_d, log_d_zeta, values = {}, {}, []  # log of u_i + exp(-xi/tau)/(n-1), and of u_i + exp(-zeta_i/tau)/(n-1)
        for anchor, other in SIDES:
            xi = torch.as_tensor(self.state[f"xi_{other}"], dtype=torch.float64).to(scale.dtype)
            log_xi_term = -scale * xi - math.log(self.n - 1)
            log_d[anchor] = torch.logaddexp(log_u[anchor], log_xi_term)
            log_d_zeta[anchor] = torch.logaddexp(log_u[anchor], -scale * zeta[other] - math.log(self.n - 1))
            values.append(log_d[anchor].mean() / scale + zeta[other].mean())
        if progress.step < self.freeze_steps or progress.epoch < self.freeze_epochs:
            loss, _ = contrast.surrogate_loss(values[0] + values[1], log_d)
            return loss, {column: rows[column] for column in self.columns} | new
        loss, negatives = contrast.surrogate_loss(values[0] + values[1], log_d, log_d_zeta)
        for anchor, other in SIDES:
            positives = (-scale * zeta[other] - log_d_zeta[anchor]).exp()  # at most n-1
            G = 1 / self.n - self.anchor_mean(negatives[other], positives, self.n) / (self.n - 1)
            new |= self._update_zeta(other, rows, G, progress)
        return loss, new

    def _update_zeta(self, side: str, rows: Rows, G: Tensor, progress: Progress) -> dict[str, Tensor]:
        """Return the new zeta [B] of the contrasted side; with variant code also its averaged gradient."""
        column, zeta = f"nuclr_gradient_{side}", rows[f"nuclr_zeta_{side}"]
        if not self.code:
            return {f"nuclr_zeta_{side}": zeta - self.eta * G}
        average = (1 - NEW_GRADIENT_WEIGHT) * rows[column] + NEW_GRADIENT_WEIGHT * self.n * G
        gradient = torch.where(rows[column] == 0, self.n * G, average)  # 0: the sample had no update yet
        step = self.eta * eta_factor(progress, self.freeze_epochs) * (IMAGE_FACTOR if side == "image" else 1.0)
        return {f"nuclr_zeta_{side}": zeta - step * gradient, column: gradient}

    def end_step(self, table: SampleTable) -> None:
        if not self.code:
            self._update_xi(table)

    def end_epoch(self, table: SampleTable) -> None:
        if self.code:
            self._update_xi(table)

    def _update_xi(self, table: SampleTable) -> None:
        largest = {side: torch.as_tensor(table.max(f"nuclr_zeta_{side}"), dtype=torch.float64) for side, _ in SIDES}
        self.state = {f"xi_{side}": zeta.clamp(min=self.xi0) for side, zeta in largest.items()}

    def notes(self, total_epochs: int) -> list[str]:
        lines = super().notes(total_epochs)
        if self.freeze_epochs >= total_epochs:
            covered = f"objective.nuclr.freeze_epochs={self.freeze_epochs} covers all {total_epochs} epochs of the run"
            lines.append(f"{covered}: zeta is never updated")
        return lines


def eta_factor(progress: Progress, start: int) -> float:
    """Return the factor on eta in variant code; `start`: epochs of the freeze period.

    A cosine from epoch `start` to the last one, divided by 10 after half and by 100 after 3/4 of the run.
    """
    done = progress.epoch / progress.total_epochs
    divisor = 100 if done >= 0.75 else 10 if done >= 0.5 else 1
    turned = (progress.epoch - start) / max(progress.total_epochs - 1 - start, 1)
    return 0.5 * (1 + math.cos(math.pi * turned)) / divisor
