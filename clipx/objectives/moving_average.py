"""What SogCLR and NUCLR share: moving averages in log space and the estimator that they weight.

exp((D_ij - zeta_j)/tau) overflows float32 from D = 0.89 on at tau = 0.01, so u is held as log u and never
exponentiated; a shift by a running maximum, the other way, must rescale u exactly, log u has nothing to rescale.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clipx.errors import UserError
from clipx.types import Embeddings


@dataclass
class Differences:
    """What one direction of a batch contrasts, all detached: D_ij = s_ij - s_ii, anchors i in the rows."""

    image: Tensor  # [B, B] image anchors, contrasted texts
    text: Tensor  # [B, B] text anchors, contrasted images
    similarity: Tensor  # [B, B] s, images in the rows; carries the gradient


def differences(embeddings: Embeddings, term: str) -> Differences:
    """The differences of a global batch.

    Raises:
        UserError: a batch of one pair, which has nothing to contrast.
    """
    if len(embeddings.image) < 2:
        raise UserError(f"objective={term} needs batches of 2 pairs or more, got {len(embeddings.image)}")
    similarity = embeddings.image @ embeddings.text.T
    s = similarity.detach()
    own = s.diagonal()[:, None]
    return Differences(s - own, s.T - own, similarity)


def log_mean_of_others(logits: Tensor) -> Tensor:
    """log of the mean over j != i of exp(logits_ij): [B, B] -> [B]."""
    others = logits.masked_fill(_diagonal(logits), -math.inf)
    return others.logsumexp(dim=1) - math.log(len(logits) - 1)


def updated(log_u: Tensor, log_g: Tensor, seen: Tensor, gamma: float) -> Tensor:
    """log of (1 - gamma) u + gamma g, or of g where nothing was seen before; exact, all [B]."""
    log_old_share = math.log1p(-gamma) if gamma < 1 else -math.inf
    average = torch.logaddexp(log_u + log_old_share, log_g + math.log(gamma))
    return torch.where(seen > 0.5, average, log_g)


def pair_weights(logits: Tensor, log_denominator: Tensor) -> Tensor:
    """W_ij = exp(logits_ij) / (B-1) / denominator_i for j != i, 0 on the diagonal: [B, B].

    Never above 1/gamma in a row's sum, as the denominator holds gamma times the row's own mean.
    """
    log_weights = logits - log_denominator[:, None] - math.log(len(logits) - 1)
    return log_weights.masked_fill(_diagonal(logits), -math.inf).exp()


def surrogate(d: Differences, weights: Sequence[Tensor], value: Tensor, scale: Tensor) -> Tensor:
    """A number [] that reads `value` and whose gradient is Algorithm 1's estimator of both directions.

    (1/B) sum_ij W^image_ij grad D_ij + (1/B) sum_ij W^text_ij grad D'_ij, with `weights`, W^image [B, B] of
    image anchors and W^text [B, B] of text anchors (anchors in the rows of both), held constant. As D is a
    difference of similarities, that is sum_ij M_ij grad s_ij with M = (W^image + W^text.T - diag(row sums
    of both)) / B. The estimator has no gradient for the temperature: a learned one gets zeros and stays.
    """
    weights_image, weights_text = weights
    M = weights_image + weights_text.T
    M.diagonal().sub_(weights_image.sum(dim=1) + weights_text.sum(dim=1))
    linear = (M / len(M) * d.similarity).sum() + 0.0 * scale
    return value + (linear - linear.detach())


def check_gamma(term: str, gamma: float) -> None:
    """Raises UserError unless 0 < gamma <= 1."""
    if not 0 < gamma <= 1:
        raise UserError(f"objective.{term}.gamma={gamma} is out of range; allowed: above 0, up to 1")


def check_size(term: str, num_samples: int) -> None:
    """Raises UserError where there is no second pair to contrast with."""
    if num_samples < 2:
        raise UserError(f"objective={term} needs 2 training pairs or more, the data set has {num_samples}")


def few_epochs(term: str, total_epochs: int) -> list[str]:
    """A line for the log where no sample is visited twice."""
    if total_epochs > 1:
        return []
    return [f"objective.{term} averages over epochs: in train.epochs=1 every sample is new, and u_i is its batch's g_i"]


def _diagonal(square: Tensor) -> Tensor:
    return torch.eye(len(square), dtype=torch.bool, device=square.device)
