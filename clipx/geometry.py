"""The shape of the shared space: modality gap, uniformity, alignment, margins.

`image` and `text` are [n, E], L2-normalised, row i of both being a pair. Sums are in double precision.
"""

import torch
from torch import Tensor

# names of the quantities that the geometry probe logs during training
METRICS = ("gap", "uniformity", "alignment", "margin_mean", "margin_positive", "loss")


def modality_gap(image: Tensor, text: Tensor) -> float:
    """Distance of the two modalities' mean embeddings (Liang et al. 2022; paper 4, appendix E.2)."""
    return float((image.double().mean(dim=0) - text.double().mean(dim=0)).norm())


def uniformity(image: Tensor, text: Tensor) -> float:
    """-W2 between N(mu, Sigma) of all 2n features and N(0, I/m), m their dimension (paper 4, appendix E.2).

        W2^2 = ||mu||^2 + 1 + tr(Sigma) - (2 / sqrt(m)) tr(Sigma^(1/2))

    Larger is more uniform; 0 is the most. Sigma is divided by the number of rows.
    """
    features = torch.cat([image, text]).double()
    mean = features.mean(dim=0)
    centred = features - mean
    covariance = centred.T @ centred / len(features)
    # Fewer rows than dimensions leave eigenvalues of -1e-17 where the exact value is 0.
    root_trace = torch.linalg.eigvalsh(covariance).clamp(min=0).sqrt().sum()
    squared = mean @ mean + 1 + covariance.trace() - 2 / features.shape[1] ** 0.5 * root_trace
    return -float(squared.clamp(min=0).sqrt())


def alignment(image: Tensor, text: Tensor) -> float:
    """Mean squared distance of the pairs (Wang and Isola 2020); smaller is better aligned."""
    return float((image.double() - text.double()).square().sum(dim=1).mean())


def margins(image: Tensor, text: Tensor) -> Tensor:
    """How much nearer the own partner is than another's (paper 1, appendix A), float64 [2 n (n - 1)].

    With f_ij = <image_i, text_j>, j != i, the first half is f_ii - f_ji (another image for the text), the
    second f_ii - f_ij (another text for the image). The paper takes batches of n = 64.
    """
    f = image.double() @ text.double().T
    own = f.diagonal()[:, None]
    others = ~torch.eye(len(f), dtype=torch.bool, device=f.device)
    return torch.cat([(own - f.T)[others], (own - f)[others]])


def alpha_hat(image: Tensor, text: Tensor, gamma: float) -> float:
    """Failure to reach the margin gamma: P(f_ii - f_ij <= gamma) + P(f_ii - f_ji <= gamma), in 0..2.

    Paper 1, equation (A.3).
    """
    return 2.0 * float((margins(image, text) <= gamma).double().mean())  # both halves are of one length


def min_margin(image: Tensor, text: Tensor) -> float:
    """The smallest of `margins`: above 0, every pair is found both ways."""
    return float(margins(image, text).min())
