"""Shared by SogCLR and NUCLR: moving averages u in log space, and the gradient estimator whose weights contain u.

At tau = 0.01, exp((D_ij - zeta_j)/tau) overflows float32 from D_ij - zeta_j = 0.89 on. Therefore log u is stored and
never exponentiated. Subtracting a running maximum would also work, but u would then need exact rescaling.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from clipx.errors import UserError
from clipx.types import Embeddings


def differences(embeddings: Embeddings, term: str) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the similarities s, and D_ij = s_ij - s_ii of both directions with the anchors i in the rows.

    Returns:
        s [B, B], images in the rows, with gradients; D of image anchors and D of text anchors [B, B], detached.

    Raises:
        UserError: a batch of one pair, which has no negatives.
    """
    if len(embeddings.image) < 2:
        raise UserError(f"objective={term} needs batches of 2 pairs or more, got {len(embeddings.image)}")
    similarity = embeddings.image @ embeddings.text.T
    s = similarity.detach()
    positives = s.diagonal()[:, None]
    return similarity, s - positives, s.T - positives


def log_mean_of_negatives(logits: Tensor) -> Tensor:
    """Compute log of the mean over j != i of exp(logits_ij): [B, B] -> [B]."""
    negatives = logits.masked_fill(diagonal_mask(logits), -math.inf)
    return negatives.logsumexp(dim=1) - math.log(len(logits) - 1)


def update_log_u(log_u: Tensor, log_g: Tensor, seen: Tensor, gamma: float) -> Tensor:
    """Compute log of (1 - gamma) u + gamma g, or log g on the first visit; all [B]. Exact."""
    log_keep = math.log1p(-gamma) if gamma < 1 else -math.inf
    average = torch.logaddexp(log_u + log_keep, log_g + math.log(gamma))
    return torch.where(seen > 0.5, average, log_g)


def pair_weights(logits: Tensor, log_denominator: Tensor) -> Tensor:
    """Compute W_ij = exp(logits_ij) / (B-1) / denominator_i for j != i, 0 on the diagonal: [B, B].

    A row sums to 1/gamma at most, because the denominator contains gamma times the row's own mean.
    """
    log_weights = logits - log_denominator[:, None] - math.log(len(logits) - 1)
    return log_weights.masked_fill(diagonal_mask(logits), -math.inf).exp()


def surrogate_loss(similarity: Tensor, weights: Sequence[Tensor], value: Tensor, scale: Tensor) -> Tensor:
    """Return a scalar [] with the given value; its gradient is the estimator of Algorithm 1 for both directions.

    The gradient is (1/B) sum_ij W^image_ij grad D_ij + (1/B) sum_ij W^text_ij grad D'_ij, where `weights` holds
    W^image [B, B] of image anchors and W^text [B, B] of text anchors (anchors in the rows of both) as constants.
    D is a difference of similarities, so this equals sum_ij M_ij grad s_ij with
    M = (W^image + W^text.T - diag(row sums of both)) / B. The estimator has no gradient for the temperature: a
    learned temperature gets a gradient of zero and does not move.
    """
    weights_image, weights_text = weights
    M = weights_image + weights_text.T
    M.diagonal().sub_(weights_image.sum(dim=1) + weights_text.sum(dim=1))
    linear = (M / len(M) * similarity).sum() + 0.0 * scale
    return value + (linear - linear.detach())


def diagonal_mask(square: Tensor) -> Tensor:
    """Return a mask [B, B] that is True on the diagonal."""
    return torch.eye(len(square), dtype=torch.bool, device=square.device)


def check_settings(term: str, num_samples: int, gamma: float) -> None:
    """Raise UserError unless there are two training pairs to contrast and 0 < gamma <= 1."""
    if num_samples < 2:
        raise UserError(f"objective={term} needs 2 training pairs or more, the data set has {num_samples}")
    if not 0 < gamma <= 1:
        raise UserError(f"objective.{term}.gamma={gamma} is out of range; allowed: above 0, up to 1")


def single_epoch_note(term: str, total_epochs: int) -> list[str]:
    """Return a log line for a run that visits no sample twice."""
    if total_epochs > 1:
        return []
    return [
        f"objective.{term} averages over epochs: with train.epochs=1 every sample is new, and u_i is g_i of its batch"
    ]
