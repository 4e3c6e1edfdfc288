"""Geometry of the embeddings: modality gap, uniformity, alignment, margins.

`image` and `text` are [n, E], L2-normalised; row i of both is a pair. Computed in double precision.
"""

import torch
from torch import Tensor

from clipx.utils.shapes import Shapes

# what the geometry probe logs during training; margin_positive: share of the margins above 0, loss: InfoNCE
PROBE_METRICS = ("gap", "uniformity", "alignment", "margin_mean", "margin_positive", "loss")


def check_sides(image: Tensor, text: Tensor, paired: bool = True) -> None:
    """Raise UserError unless both have the shape [n, E]. With paired=False, their numbers of rows may differ."""
    shapes = Shapes()
    shapes.check("image", image, "n E")
    shapes.check("text", text, "n E" if paired else "m E")


def modality_gap(image: Tensor, text: Tensor) -> float:
    """Return the distance between the mean embeddings of the modalities (Liang et al. 2022; paper 4, appendix E.2)."""
    check_sides(image, text, paired=False)
    return float((image.double().mean(dim=0) - text.double().mean(dim=0)).norm())


def distribution_gap(image: Tensor, text: Tensor) -> float:
    """Return the energy distance of the centred modalities (Szekely and Rizzo 2013); 0 for one pair.

        2 E|x_i - y_j| - E|x_i - x_j| - E|y_i - y_j|   over i != j

    `modality_gap` is the distance of the means; this is the difference that remains without them. Compare only values
    of equal n: for equal distributions the value is about -E|x_i - x_j| / n, because each modality is centred by the
    mean of its own sample. Liu et al. 2026 (arXiv 2604.00279) divide the gap into these two parts; we use the energy
    distance, because we could not read their formula.
    """
    check_sides(image, text)
    n = len(image)
    x, y = (side.double() - side.double().mean(dim=0) for side in (image, text))
    both = [(x, y, 2), (x, x, -1), (y, y, -1)]
    total = sum(sign * (torch.cdist(a, b).sum() - (a - b).norm(dim=1).sum()) for a, b, sign in both)
    return float(total) / max(n * (n - 1), 1)


def uniformity(image: Tensor, text: Tensor) -> float:
    """Return minus the 2-Wasserstein distance W2 from N(mu, Sigma) to N(0, I/m) (paper 4, appendix E.2).

        W2^2 = ||mu||^2 + 1 + tr(Sigma) - (2 / sqrt(m)) tr(Sigma^(1/2))

    mu and Sigma are the mean and the biased covariance of the features of both modalities together, and m is their
    dimension. Larger is more uniform; the largest value is 0. NaN if a feature is not finite.
    """
    check_sides(image, text, paired=False)
    features = torch.cat([image, text]).double()
    if not features.isfinite().all():  # eigvalsh would raise an error
        return float("nan")
    mean = features.mean(dim=0)
    centred = features - mean
    covariance = centred.T @ centred / len(features)
    # with fewer rows than dimensions, rounding gives eigenvalues of -1e-17 instead of 0
    root_trace = torch.linalg.eigvalsh(covariance).clamp(min=0).sqrt().sum()
    squared = mean @ mean + 1 + covariance.trace() - 2 / features.shape[1] ** 0.5 * root_trace
    return -float(squared.clamp(min=0).sqrt())


def alignment(image: Tensor, text: Tensor) -> float:
    """Return the mean squared distance of the pairs (Wang and Isola 2020); smaller is better."""
    check_sides(image, text)
    return float((image.double() - text.double()).square().sum(dim=1).mean())


def margins(image: Tensor, text: Tensor) -> Tensor:
    """Return similarities of pairs minus similarities of non-pairs (paper 1, appendix A), float64 [2 n (n - 1)].

    With f_ij = <image_i, text_j> and j != i, the first half is f_ii - f_ji (another image for the text), the second
    half f_ii - f_ij (another text for the image). The paper uses batches of n = 64.
    """
    check_sides(image, text)
    f = image.double() @ text.double().T
    paired = f.diagonal()[:, None]
    others = ~torch.eye(len(f), dtype=torch.bool, device=f.device)
    return torch.cat([(paired - f.T)[others], (paired - f)[others]])


def alpha_hat(image: Tensor, text: Tensor, gamma: float) -> float:
    """Return P(f_ii - f_ij <= gamma) + P(f_ii - f_ji <= gamma), in 0..2 (paper 1, equation A.3).

    This is the share of margins of at most gamma, added over both directions; see `margins` for f_ij. NaN for one pair.
    """
    return 2.0 * float((margins(image, text) <= gamma).double().mean())  # both halves have the same length


def min_margin(image: Tensor, text: Tensor) -> float:
    """Return the smallest margin, NaN for one pair; above 0, retrieval is correct in both directions."""
    values = margins(image, text)
    return float(values.min()) if len(values) else float("nan")
