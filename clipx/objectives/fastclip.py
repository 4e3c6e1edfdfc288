"""FastCLIP and DRRho-CLIP: global contrastive losses with a schedule of gamma (Wei et al. 2024, arXiv 2407.01445).

B is the global batch size and s = image @ text.T [B, B]. Image anchors have D_ij = s_ij - s_ii and
g_i = 1/(B-1) sum_{j != i} exp(D_ij / tau). Text anchors use s_ji and have their own u; both directions are added.
u_i is a moving average of g_i (on the first visit of sample i: g_i), and replaces g_i in the denominator of the
gradient:

    u_i <- (1 - gamma_e) u_i + gamma_e g_i  in epoch e,   grad log(eps + g_i) ~ 1/(eps + u_i) grad g_i
    gamma_e = gamma + (1 - gamma) (1 + cos(pi e / T)) / 2  for e < T = gamma_decay_epochs, then gamma

    fastclip_v1   GCL     tau/B sum_i log(eps + g_i)                  no gradient for tau; SogCLR with this schedule
    fastclip_v2   RGCL    1/B sum_i tau_i ( log(eps + g_i) + rho )    every anchor has its own tau_i (iSogCLR)
    fastclip_v3   RGCL-g  tau/B sum_i log(eps + g_i) + rho tau        one learned tau

Formulas, constants and defaults (those for CC3M) are from the authors' code and README. The authors optimise half of
the sum of both directions, and v1 and v2 omit the factors tau and tau_i in the gradient of the embeddings; here the
gradient has them. In the part of this gradient that reaches the contrasted samples, the authors' v2 uses the new tau_i;
here all of it has the old one. v2 updates tau_i by

    G = clamp( log(eps + u_i) + rho - 1/(eps + u_i) 1/(B-1) sum_{j != i} exp(D_ij / tau_i) D_ij / tau_i, -5, 5 )
    m <- 0.9 m + 0.1 G,  v <- 0.999 v + 0.001 G^2,  tau_i <- clamp( tau_i - eta m' / (v' + 1e-8), 0.01, 1 )

where m' = m / (1 - 0.9^(e+1)) and v' = v / (1 - 0.999^(e+1)), and in epoch 0 m' = m = G, v' = v = G^2. As in the
authors' code, v' is used without a square root. Their 0.9, 0.999 and 1e-8 are those of the optimizer for a ResNet; for
a vision transformer they are 0.9, 0.98 and 1e-6.

v3's gradient of tau in one direction is

    1/B sum_i ( log(eps + u_i) + rho - w/(eps + u_i) 1/(B-1) sum_{j != i} exp(D_ij / tau) D_ij / tau )

with w = 1. The authors' code has w = 2 (`tau_gradient: code`): it adds the embeddings' part of the loss once with the
sample as anchor and once as contrasted sample, halves their sum, and lets both reach tau. Their later code for
DRRho-CLIP has w = 1 in a class that it does not train with, and w = 2 in the one that it trains with (SogCLRLoss: the
embeddings' part is not halved, the rest is). D_ij is mostly negative, so that w = 2 gives a smaller tau.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clipx.config.setting import AT_LEAST_0, POSITIVE, between, check_range
from clipx.objectives.base import Rows, TermOutput
from clipx.objectives.similarity import EXCLUDE_POSITIVES, Reduction, log_sums, positive_logits, softmax_gradients
from clipx.objectives.sogclr import Contrast, MovingAverageTerm, check_batch, moments
from clipx.types import Embeddings, Progress
from clipx.utils.registry import lookup

# constants of fastclip_v2, from the authors' code
BETAS, EPS_TAU, LARGEST_GRADIENT = (0.9, 0.999), 1e-8, 5.0
TAU_BOUNDS = 0.01, 1.0
TAU_GRADIENTS = {"formula": 1.0, "code": 2.0}  # weight of the sum over D_ij in fastclip_v3's gradient of tau


class FastClipV1Term(MovingAverageTerm):
    """The value is tau/B sum_i log(eps + u_i), added over both directions.

    Args:
        gamma: weight of the new value in the moving average, after its decay from 1.
        gamma_decay_epochs: T, number of epochs in which gamma decays; null: half of the run.
        eps: added to u_i.
    """

    name = "fastclip_v1"
    needs: tuple[str, ...] = ("progress",)

    def __init__(
        self, num_samples: int, gamma: float = 0.2, gamma_decay_epochs: int | None = None, eps: float = 1e-14
    ) -> None:
        super().__init__(num_samples, gamma)
        check_range(f"objective.{self.name}.gamma_decay_epochs", gamma_decay_epochs or 0, AT_LEAST_0)
        check_range(f"objective.{self.name}.eps", eps, POSITIVE)
        self.log_eps = math.log(eps)
        self.gamma_decay_epochs = gamma_decay_epochs

    def gamma_of(self, progress: Progress) -> float:
        epochs = self.gamma_decay_epochs
        return decayed_gamma(self.gamma, progress.epoch, progress.total_epochs // 2 if epochs is None else epochs)


class FastClipV3Term(FastClipV1Term):
    """The value is tau/B sum_i log(eps + u_i) + rho tau, added over both directions.

    The authors learn tau at a constant rate without warm-up, and at a third of it while tau <= 0.03. Here the rate of
    tau follows the run's schedule.

    Args (the others are those of fastclip_v1):
        rho: a larger rho gives a smaller tau.
        tau_gradient: formula | code; see above.
    """

    name = "fastclip_v3"
    learns_temperature = True

    def __init__(
        self,
        num_samples: int,
        gamma: float = 0.2,
        gamma_decay_epochs: int | None = None,
        eps: float = 1e-14,
        rho: float = 6.5,
        tau_gradient: str = "formula",
    ) -> None:
        super().__init__(num_samples, gamma, gamma_decay_epochs, eps)
        self.rho = rho
        self.of_scale = lookup(TAU_GRADIENTS, tau_gradient, f"objective.{self.name}.tau_gradient")

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        contrast = Contrast(embeddings, self.name)
        log_d, new = self.update(contrast.log_g, rows, progress)
        value = (log_d["image"].mean() + log_d["text"].mean() + 2 * self.rho) / embeddings.scale
        return contrast.surrogate_loss(value, log_d, of_scale=self.of_scale)[0], new


class FastClipV2Term(FastClipV1Term):
    """The value is 1/B sum_i tau_i (log(eps + u_i) + rho), added over both directions. The run's tau is not used.

    Args (the others are those of fastclip_v1):
        rho: a larger rho gives smaller tau_i.
        tau0: initial value of every tau_i.
        eta: step size of tau_i.
    """

    name = "fastclip_v2"

    def __init__(
        self,
        num_samples: int,
        gamma: float = 0.2,
        gamma_decay_epochs: int | None = None,
        eps: float = 1e-14,
        rho: float = 7.0,
        tau0: float = 0.03,
        eta: float = 0.0133,
    ) -> None:
        super().__init__(num_samples, gamma, gamma_decay_epochs, eps)
        check_range(f"objective.{self.name}.tau0", tau0, between(*TAU_BOUNDS))
        check_range(f"objective.{self.name}.eta", eta, AT_LEAST_0)
        self.rho, self.eta = rho, eta
        self.add_columns({"tau": tau0, "m": 0.0, "v": 0.0})

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        x, y = embeddings.image, embeddings.text
        directions = {"image": Direction(x, y, embeddings, rows[f"{self.name}_tau_image"])}
        directions["text"] = Direction(y, x, embeddings, rows[f"{self.name}_tau_text"])
        log_d, new = self.update({side: d.log_g for side, d in directions.items()}, rows, progress)
        total = x.new_zeros(())
        for side, direction in directions.items():
            zero_with_gradient, expected = direction.surrogate_loss(log_d[side])
            total = total + (direction.tau * (log_d[side] + self.rho)).mean() + zero_with_gradient
            G = (log_d[side] + self.rho - expected).clamp(-LARGEST_GRADIENT, LARGEST_GRADIENT)
            new |= self._update_tau(side, rows, G, progress.epoch)
        return total, new

    def _update_tau(self, side: str, rows: Rows, G: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return the new tau and the moments m, v of its gradient G, [B] each."""
        tau, m, v = (f"{self.name}_{column}_{side}" for column in ("tau", "m", "v"))
        new_m, new_v, mean, square = moments(rows[m], rows[v], G, BETAS if epoch else (0.0, 0.0), epoch)
        new_tau = rows[tau] - self.eta * (mean / (square + EPS_TAU))
        return {m: new_m, v: new_v, tau: new_tau.clamp(*TAU_BOUNDS)}


@dataclass
class Direction:
    """The direction from anchors a to the other modality b; z_ij = <a_i, b_j> / tau_i."""

    a: Tensor  # [B, E]
    b: Tensor  # [B, E]
    embeddings: Embeddings
    tau: Tensor  # [B]

    def __post_init__(self) -> None:
        B = len(self.a)
        check_batch("fastclip_v2", B)
        self.pairs = (self.a / self.tau[:, None]).detach(), self.b.detach(), self.tau.new_ones(())
        self.reductions = (Reduction(1, EXCLUDE_POSITIVES),)
        self.sums = log_sums(*self.pairs, self.reductions, self.embeddings.part)
        self.z_own = positive_logits(*self.pairs)
        self.log_g = self.sums[0] - self.z_own - math.log(B - 1)  # [B]

    def surrogate_loss(self, log_d: Tensor) -> tuple[Tensor, Tensor]:
        """Return a scalar of value 0 with the gradient 1/B sum_i tau_i/d_i grad g_i, and weighted means of D_ij, [B].

        The means are g_i/d_i sum_j P_ij D_ij/tau_i, with d_i = eps + u_i and P_ij the softmax of z_ij over j != i.
        """
        B, part = len(self.a), self.embeddings.part
        share = (self.log_g - log_d).exp()  # g_i/d_i
        gradients, _ = softmax_gradients(self.pairs, self.reductions, self.sums, [self.tau * share / B], part)
        mean_z = part.sum((gradients.image * self.pairs[0]).sum(dim=1)) * B / self.tau  # share_i sum_j P_ij z_ij
        linear = (gradients.image * self.a / self.tau[:, None]).sum() + (gradients.text * self.b).sum()
        linear = linear - (share * (self.a * self.b).sum(dim=1)).mean()
        return linear - linear.detach(), mean_z - share * self.z_own


def decayed_gamma(gamma: float, epoch: int, decay_epochs: int) -> float:
    """Return gamma of an epoch: a cosine from 1 to `gamma` over the first `decay_epochs` epochs."""
    if epoch >= decay_epochs:
        return gamma
    return gamma + (1 - gamma) * (1 + math.cos(math.pi * epoch / decay_epochs)) / 2


class DrrhoTerm(FastClipV3Term):
    """DRRho-CLIP: fastclip_v3 relative to a reference model, model.teacher (Wei et al. 2025, arXiv 2505.06699).

        D_ij = (s_ij - s_ii) - (s'_ij - s'_ii),   g_i = 1/(B-1) sum_{j != i} exp(D_ij / tau)
        L = tau/B sum_i log(eps + g_i) + rho tau, added over both directions

    with similarities s of the model and s' of the reference, and the model's tau. A negative weighs less if the
    reference, too, gives it a large similarity to the anchor. s - s' is computed as the dot product of [x, x'] and
    [y, -y'], whose width is the sum of both models' widths.

    The defaults are those of the authors' script: eps = 1e-4, rho = 11, and gamma decays from 1 to
    min(1, 4.177 T^-0.7265) over the T epochs of the run. The script keeps tau at 0.01: temperature.kind=fixed
    temperature.tau=0.01.

    The authors' code trains with its class SogCLRLoss, where u averages eps + (B-1)/B g_i: a factor (B-1)/B on u that
    is not in the formula. Its FastCLIPLoss also multiplies u by exp(-s_ii), but no setting selects this class.

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
