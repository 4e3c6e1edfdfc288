"""Kernel embeddings of weighted point sets (paper 5, sections 5.2 and 5.3, algorithm 1).

The similarity of the sets {(v_i, w_i)} and {(u_j, w_j)}, with v and u of unit length, is (eq. 6)

    sum_ij w_i w_j k(v_i, u_j),   k(u, v) = alpha1 u.v + alpha2 k~(u, v)

    gaussian   k~ = exp(-r^2 / 2 sigma^2)        imq   k~ = c / sqrt(c^2 + r^2)        r = |u - v|

Random Fourier features z(v) = sqrt(2/D) cos(omega v + beta) satisfy E[z(u).z(v)] = k~(u, v) (eq. 9). The similarity is
therefore estimated by the dot product of one vector per set (eq. 8):
[sqrt(alpha1) sum_i w_i v_i, sqrt(alpha2) sum_i w_i z(v_i)].

b: sets, K: points in a set, d: dimension of the points, D: number of random features (rows of omega).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from clipx.types import PointSet
from clipx.utils.registry import lookup

CHUNK = 1 << 22  # largest number of elements of a [b', K, D] block, b' <= b sets: 16 MiB in float32

# width, d, D and a generator -> omega [D, d]
FREQUENCIES: dict[str, Callable[[float, int, int, Generator], Tensor]] = {
    # omega ~ N(0, I / sigma^2)
    "gaussian": lambda sigma, d, D, generator: torch.randn(D, d, generator=generator) / sigma,
    # omega = (t / c) q with t ~ N(0, 1) and q ~ N(0, I). For fixed t this gives the Gaussian kernel
    # exp(-t^2 r^2 / 2 c^2), whose mean over t is c / sqrt(c^2 + r^2).
    "imq": lambda c, d, D, generator: (
        torch.randn(D, 1, generator=generator) / c * torch.randn(D, d, generator=generator)
    ),
}
# number of points K -> factor on the weights of a set
REDUCTIONS: dict[str, Callable[[int], float]] = {"mean": lambda K: 1 / K, "sum": lambda K: 1.0}


def sample_frequencies(kernel: str, width: float, dim: int, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw omega [D, d] and the phases beta ~ U[0, 2 pi) [D] of random Fourier features, on the CPU.

    `width` is sigma for the kernel gaussian and c for imq, `dim` is d, `count` is D. Raises UserError for an unknown
    kernel.
    """
    omega = lookup(FREQUENCIES, kernel, "model.points.kernel")(width, dim, count, generator)
    return omega, 2 * math.pi * torch.rand(count, generator=generator)


def embed(point_set: PointSet, alpha: Sequence[float], omega: Tensor, beta: Tensor, reduce: str = "mean") -> Tensor:
    """Compute one vector per set; dot products of these vectors are the similarities.

    Args:
        point_set: points [b, K, d], L2-normalised here; weights [b, K].
        alpha: alpha1 of the linear and alpha2 of the nonlinear kernel.
        omega: [D, d]; with D = 0 only the linear part.
        beta: [D].
        reduce: mean (a factor 1/K) or sum over the points; UserError for another name.

    Returns [b, d + D] in the dtype of the points, differentiable in points and weights (not in omega and beta).
    """
    points = F.normalize(point_set.points, dim=-1)
    weights = point_set.weights * lookup(REDUCTIONS, reduce, "model.points.reduce")(points.shape[1])
    linear = math.sqrt(alpha[0]) * (weights[:, None, :] @ points)[:, 0]
    if not len(omega):
        return linear
    cosines = _CosineSums.apply(points, weights, omega.to(points), beta.to(points))
    return torch.cat([linear, math.sqrt(2 * alpha[1] / len(omega)) * cosines], dim=1)


class _CosineSums(torch.autograd.Function):
    """sum_k w_k cos(omega v_k + beta), [b, D].

    Never stores the [b, K, D] block: forward computes it in chunks of sets, and backward recomputes the chunks.
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, weights: Tensor, omega: Tensor, beta: Tensor) -> Tensor:
        ctx.save_for_backward(points, weights, omega, beta)
        sums = points.new_empty(len(points), len(omega))
        for rows in _chunks(points, omega):
            cosines = _phases(points[rows], omega, beta).cos_()
            torch.bmm(weights[rows, None], cosines, out=sums[rows, None])
        return sums

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        points, weights, omega, beta = ctx.saved_tensors
        grad = grads[0].contiguous()
        grad_points, grad_weights = torch.empty_like(points), torch.empty_like(weights)
        for rows in _chunks(points, omega):
            phases = _phases(points[rows], omega, beta)
            torch.bmm(phases.cos(), grad[rows, :, None], out=grad_weights[rows, :, None])
            slopes = phases.sin_().mul_(grad[rows, None]) @ omega
            torch.mul(slopes, -weights[rows, :, None], out=grad_points[rows])
        return grad_points, grad_weights, None, None


def _chunks(points: Tensor, omega: Tensor) -> list[slice]:
    b, K = points.shape[:2]
    size = max(1, CHUNK // (K * len(omega)))
    return [slice(start, min(b, start + size)) for start in range(0, b, size)]


def _phases(points: Tensor, omega: Tensor, beta: Tensor) -> Tensor:
    """omega v + beta, [b', K, D]."""
    b, K, d = points.shape
    return torch.addmm(beta, points.reshape(b * K, d), omega.T).view(b, K, len(omega))
