"""Kernel embeddings of weighted point sets (paper 5, sections 5.2 and 5.3, algorithm 1).

The similarity of {(v_i, w_i)} and {(u_j, w_j)} is sum_ij w_i w_j k(v_i, u_j), with v and u of unit length and

    k(u, v) = alpha1 u.v + alpha2 k~(u, v),   k~ = exp(-r^2 / 2 sigma^2) or c / sqrt(c^2 + r^2),   r = |u - v|

Random Fourier features z(v) = sqrt(2/D) cos(omega v + beta) have E[z(u).z(v)] = k~(u, v), so that one vector a
set has this similarity as its dot product: [sqrt(alpha1) sum_i w_i v_i, sqrt(alpha2) sum_i w_i z(v_i)].
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from clipx.types import PointSet
from clipx.utils.registry import lookup

CHUNK = 1 << 22  # numbers of a [b', K, D] block that exist at a time: 16 MiB in float32


def gaussian_frequencies(width: float, dim: int, count: int, generator: Generator) -> Tensor:
    """omega ~ N(0, I / sigma^2), [count, dim]."""
    return torch.randn(count, dim, generator=generator) / width


def imq_frequencies(width: float, dim: int, count: int, generator: Generator) -> Tensor:
    """omega = (t / c) q with t ~ N(0, 1) and q ~ N(0, I), [count, dim].

    Given t this is the Gaussian kernel exp(-t^2 r^2 / 2 c^2), whose mean over t is c / sqrt(c^2 + r^2).
    """
    t = torch.randn(count, 1, generator=generator)
    return t / width * torch.randn(count, dim, generator=generator)


FREQUENCIES: dict[str, Callable[[float, int, int, Generator], Tensor]] = {
    "gaussian": gaussian_frequencies,
    "imq": imq_frequencies,
}
# k~ from squared distances and the width
KERNELS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "gaussian": lambda squared, width: torch.exp(-squared / (2 * width**2)),
    "imq": lambda squared, width: width / torch.sqrt(width**2 + squared),
}
# sums over K points -> the similarity's factor of each set
REDUCTIONS: dict[str, Callable[[int], float]] = {"mean": lambda K: 1 / K, "sum": lambda K: 1.0}


def sample_frequencies(kernel: str, width: float, dim: int, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """A draw of random Fourier features.

    Args:
        kernel: gaussian | imq.
        width: sigma of gaussian, c of imq.
        dim: d, of the points.
        count: D, features.
        generator: on the CPU.

    Returns:
        omega [count, dim] and beta ~ U[0, 2 pi) [count], on the CPU.

    Raises:
        UserError: unknown kernel.
    """
    omega = lookup(FREQUENCIES, kernel, "model.points.kernel")(width, dim, count, generator)
    return omega, 2 * math.pi * torch.rand(count, generator=generator)


def embed(point_set: PointSet, alpha: Sequence[float], omega: Tensor, beta: Tensor, reduce: str = "mean") -> Tensor:
    """One vector a set, whose dot products are the similarity.

    Args:
        point_set: points [b, K, d], of any length: they are L2-normalised here; weights [b, K].
        alpha: alpha1 of the linear and alpha2 of the nonlinear kernel.
        omega: [D, d]; with D = 0 only the linear part.
        beta: [D].
        reduce: mean (a factor 1/K) or sum over the points.

    Returns:
        [b, d + D], in the points' precision, with gradients to points and weights (not to omega and beta).
    """
    points = F.normalize(point_set.points, dim=-1)
    weights = point_set.weights * lookup(REDUCTIONS, reduce, "model.points.reduce")(points.shape[1])
    linear = math.sqrt(alpha[0]) * (weights[:, None, :] @ points)[:, 0]
    if not len(omega):
        return linear
    waves = _Waves.apply(points, weights, omega.to(points), beta.to(points))
    return torch.cat([linear, math.sqrt(2 * alpha[1] / len(omega)) * waves], dim=1)


class _Waves(torch.autograd.Function):
    """sum_k w_k cos(omega v_k + beta) [b, D], without [b, K, D]: in chunks of samples, and again in backward."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, weights: Tensor, omega: Tensor, beta: Tensor) -> Tensor:
        ctx.save_for_backward(points, weights, omega, beta)
        sums = points.new_empty(len(points), len(omega))
        for rows in _chunks(points, omega):
            waves = _phases(points[rows], omega, beta).cos_()
            torch.bmm(weights[rows, None], waves, out=sums[rows, None])
        return sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        points, weights, omega, beta = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_points, of_weights = torch.empty_like(points), torch.empty_like(weights)
        for rows in _chunks(points, omega):
            phases = _phases(points[rows], omega, beta)
            torch.bmm(phases.cos(), gradient[rows, :, None], out=of_weights[rows, :, None])
            slopes = phases.sin_().mul_(gradient[rows, None]) @ omega
            torch.mul(slopes, -weights[rows, :, None], out=of_points[rows])
        return of_points, of_weights, None, None


def _chunks(points: Tensor, omega: Tensor) -> list[slice]:
    b, K = points.shape[:2]
    size = max(1, CHUNK // (K * len(omega)))
    return [slice(start, min(b, start + size)) for start in range(0, b, size)]


def _phases(points: Tensor, omega: Tensor, beta: Tensor) -> Tensor:
    """omega v + beta, [b', K, D]."""
    b, K, d = points.shape
    return torch.addmm(beta, points.reshape(b * K, d), omega.T).view(b, K, len(omega))


def exact_similarity(
    image: PointSet, text: PointSet, kernel: str, width: float, alpha: Sequence[float], reduce: str = "mean"
) -> Tensor:
    """The kernel sums themselves, [b, b'], for small sets: it holds all b x b' x K x K' pairs of points.

    Raises:
        UserError: unknown kernel.
    """
    factor = lookup(REDUCTIONS, reduce, "model.points.reduce")
    v, u = F.normalize(image.points, dim=-1), F.normalize(text.points, dim=-1)
    inner = torch.einsum("ikd,jld->ijkl", v, u)
    nonlinear = lookup(KERNELS, kernel, "model.points.kernel")((2 - 2 * inner).clamp(min=0), width)
    pairs = alpha[0] * inner + alpha[1] * nonlinear
    sums = torch.einsum("ik,jl,ijkl->ij", image.weights, text.weights, pairs)
    return sums * factor(v.shape[1]) * factor(u.shape[1])
