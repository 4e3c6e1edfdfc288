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

This is NUCLR with zeta = 0, whose d_i = u_i + exp(-xi_i/tau)/(n-1): with own_pair xi_i = 0, else this term is left
out.

NUCLR, FastCLIP and other terms share `Contrast` and `MovingAverageTerm`. `Contrast` subtracts NUCLR's zeta_j from D_ij;
the others have zeta = 0.

At tau = 0.01, exp((D_ij - zeta_j)/tau) overflows float32 from D_ij - zeta_j = 0.89 on. Therefore log u is stored and
never exponentiated. Subtracting a running maximum would also work, but u would need rescaling when the maximum changes.

With the softmax weights P_ij = exp((D_ij - zeta_j)/tau) / ((B-1) g_i) over j != i, the sums over pairs of NUCLR's
Algorithm 1 (paper 3) are:

    log g_i = log sum_{j != i} exp((s_ij - zeta_j)/tau) - s_ii/tau - log(B-1)
    1/d_i 1/(B-1) sum_{j != i} exp((D_ij - zeta_j)/tau) grad D_ij  =  g_i/d_i (sum_j P_ij grad s_ij - grad s_ii)
    sum_{i != j} exp((D_ij - zeta_j)/tau) / d_i                     =  (B-1) sum_i g_i/d_i P_ij

The first line is a log-sum-exp, and P its derivative. One pass over tiles gives log g, a second pass the gradient and
the sums over i; the two passes need four matrix products in total, as in `clip`. g_i/d_i is at most 1/gamma.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from clipx.config.setting import FACTOR, check_range
from clipx.errors import UserError
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.similarity import EXCLUDE_POSITIVES, Reduction, log_sums, positive_logits, softmax_gradients
from clipx.types import Embeddings, Progress

Columns = dict[str, Tensor]  # side, or name of a column -> [B]
SIDES = (("image", "text"), ("text", "image"))  # (side of the anchors i, contrasted side of j)


class Kept(NamedTuple):
    """The negatives of the anchors of one side, if some are left out (GloFND)."""

    largest: Tensor  # [B], pairs with a larger logit are left out
    number: Tensor  # [B], number of negatives kept; g_i is the mean of their exp


class Contrast:
    """Both directions of a batch, anchors against the negatives of the other side.

    Args:
        zeta: side -> [B], subtracted from the similarities to that side; None for zeros.
        kept: side of the anchors -> its negatives; None for all others of the batch.

    Attributes:
        log_g: side of the anchors -> log g [B].

    Raises UserError: a batch of one pair.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        term: str,
        zeta: Mapping[str, Tensor] | None = None,
        kept: Mapping[str, Kept] | None = None,
    ) -> None:
        self.B = len(embeddings.image)
        check_batch(term, self.B)
        self.embeddings, self.scale = embeddings, embeddings.scale.detach()
        self.pairs = embeddings.image.detach(), embeddings.text.detach(), self.scale
        offsets = {side: self.scale * z for side, z in (zeta or {}).items()}
        self.reductions = tuple(
            Reduction(dim, EXCLUDE_POSITIVES, offsets.get(other), kept[anchor].largest if kept else None)
            for dim, (anchor, other) in zip((1, 0), SIDES, strict=True)
        )
        self.sums = log_sums(*self.pairs, self.reductions, embeddings.part)
        log_sum = dict(zip(("image", "text"), self.sums - positive_logits(*self.pairs), strict=True))
        if kept is None:
            self.log_g = {anchor: row - math.log(self.B - 1) for anchor, row in log_sum.items()}
        else:  # an anchor without a negative has g_i = 0
            self.log_g = {anchor: row - kept[anchor].number.clamp(min=1).log() for anchor, row in log_sum.items()}

    def surrogate_loss(
        self,
        value: Tensor,
        log_d: Mapping[str, Tensor],
        log_d_zeta: Mapping[str, Tensor] | None = None,
        of_scale: float = 0.0,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a scalar [] with the given value, whose gradient is the estimator of Algorithm 1 for both directions.

        The gradient of `value`, if any, is added to the estimator.

        Args:
            log_d: side of the anchors -> log d [B], of the d_i in the gradient.
            log_d_zeta: side of the anchors -> log d [B], of the d_i in the returned sums; None: no sums.
            of_scale: factor on the gradient of the scale 1/tau, tau/B sum_i 1/d_i dg_i/d(1/tau). NUCLR needs 0,
                because this leaves out the part from zeta_j/tau.

        Returns:
            The scalar, and contrasted side -> sum over i != j of exp((D_ij - zeta_j)/tau) / d_i, [B]; empty without
            `log_d_zeta`.
        """
        shares = [(self.log_g[anchor] - log_d[anchor]).exp() for anchor, _ in SIDES]  # g_i/d_i
        weights = [share / self.B / self.scale for share in shares]
        factors = [(self.log_g[anchor] - log_d_zeta[anchor]).exp() * (self.B - 1) for anchor, _ in SIDES if log_d_zeta]
        part = self.embeddings.part
        gradients, sums = softmax_gradients(self.pairs, self.reductions, self.sums, weights, part, factors)
        image, text = self.embeddings.image, self.embeddings.text
        linear = (gradients.image * image).sum() + (gradients.text * text).sum()
        positives = (shares[0] + shares[1]) * (image * text).sum(dim=1)
        linear = linear - positives.mean()
        if of_scale:  # d log g_i / d scale = sum_j P_ij s_ij - s_ii
            scale_gradient = gradients.scale - (positives.mean() / self.scale).detach()
            linear = linear + of_scale * scale_gradient * self.embeddings.scale
        of_others = {other: row for (_, other), row in zip(SIDES, sums, strict=True)} if log_d_zeta else {}
        return value + (linear - linear.detach()), of_others


class MovingAverageTerm(Term):
    """Keeps u of both directions. The value is (tau/B) sum_i log d_i, added over both directions.

    Subclasses set `name`, which also prefixes the columns, and `log_eps`, the logarithm of the constant d_i - u_i.
    """

    name: str
    log_eps: float
    learns_temperature = False

    def __init__(self, num_samples: int, gamma: float) -> None:
        if num_samples < 2:
            raise UserError(f"objective={self.name} needs 2 training pairs or more, the data set has {num_samples}")
        check_range(f"objective.{self.name}.gamma", gamma, FACTOR)
        self.gamma = gamma
        self.columns = {f"{self.name}_{column}": 0.0 for column in ("seen", "log_u_image", "log_u_text")}

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        contrast = Contrast(embeddings, self.name)
        log_d, new = self.update(contrast.log_g, rows, progress)
        value = (log_d["image"].mean() + log_d["text"].mean()) / contrast.scale
        return contrast.surrogate_loss(value, log_d)[0], new

    def update(self, log_g: Mapping[str, Tensor], rows: Rows, progress: Progress) -> tuple[Columns, Columns]:
        """Return side of the anchors -> log d [B], and the new values of the columns."""
        log_u, new = self.averages(log_g, rows, progress)
        return {side: torch.logaddexp(u, u.new_full((), self.log_eps)) for side, u in log_u.items()}, new

    def averages(self, log_g: Mapping[str, Tensor], rows: Rows, progress: Progress) -> tuple[Columns, Columns]:
        """Return side of the anchors -> the new log u [B], and the new values of the columns."""
        seen, gamma = rows[f"{self.name}_seen"], self.gamma_of(progress)
        log_u = {s: update_log_u(rows[f"{self.name}_log_u_{s}"], found, seen, gamma) for s, found in log_g.items()}
        new = {f"{self.name}_log_u_{side}": u for side, u in log_u.items()}
        return log_u, {f"{self.name}_seen": torch.ones_like(seen), **new}

    def add_columns(self, initial: Mapping[str, float]) -> None:
        """Add a column for each side, with the given initial value."""
        more = {f"{self.name}_{column}_{side}": x for column, x in initial.items() for side in ("image", "text")}
        self.columns = {**self.columns, **more}

    def gamma_of(self, progress: Progress) -> float:
        """Return gamma of the current epoch."""
        return self.gamma

    def notes(self, total_epochs: int) -> list[str]:
        if total_epochs > 1:
            return []
        return [
            f"objective.{self.name}.gamma has no effect in this run of one epoch: it visits no sample twice, so there "
            "is nothing to average"
        ]


def update_log_u(log_u: Tensor, log_g: Tensor, seen: Tensor, gamma: float) -> Tensor:
    """Compute log((1 - gamma) u + gamma g), or log g where `seen` is 0 (first visit); all [B]."""
    log_keep = math.log1p(-gamma) if gamma < 1 else -math.inf
    average = torch.logaddexp(log_u + log_keep, log_g + math.log(gamma))
    return torch.where(seen > 0.5, average, log_g)


def check_batch(term: str, B: int) -> None:
    """Raise UserError if a batch of B pairs has no negatives."""
    if B < 2:
        raise UserError(f"objective={term} needs batches of 2 pairs or more, got {B}")


def moments(m: Tensor, v: Tensor, G: Tensor, betas: tuple[float, float], epoch: int) -> tuple[Tensor, ...]:
    """Return m, v, and both divided by 1 - beta^(epoch + 1): Adam's moments of G; all [B]."""
    beta1, beta2 = betas
    m, v = beta1 * m + (1 - beta1) * G, beta2 * v + (1 - beta2) * G.square()
    return m, v, m / (1 - beta1 ** (epoch + 1)), v / (1 - beta2 ** (epoch + 1))


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
