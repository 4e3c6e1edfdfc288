"""Kernel embeddings of point sets: golden values, convergence to exact kernel sums, chunks."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.models import kernels
from clipx.models.kernels import REDUCTIONS, embed, sample_frequencies
from clipx.types import PointSet
from clipx.utils import rng
from tests.golden import GOLDEN

WPSE = GOLDEN["wpse"]
ALPHA = (0.5, 0.5)
# the nonlinear kernel k~ (see clipx.models.kernels) as a function of squared distance and width
KERNELS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "gaussian": lambda squared, width: torch.exp(-squared / (2 * width**2)),
    "imq": lambda squared, width: width / torch.sqrt(width**2 + squared),
}


def golden(name: str) -> Tensor:
    return torch.tensor(WPSE[name], dtype=torch.float64)


def golden_set(side: str) -> PointSet:
    return PointSet(golden(f"points_{side}"), golden(f"weights_{side}"))


def random_set(b: int, K: int, d: int, seed: int) -> PointSet:
    points = torch.randn(b, K, d, generator=rng.generator(seed, 1), dtype=torch.float64)
    return PointSet(points, torch.randn(b, K, generator=rng.generator(seed, 2), dtype=torch.float64))


def exact_similarity(
    image: PointSet, text: PointSet, kernel: str, width: float, alpha: Sequence[float], reduce: str = "mean"
) -> Tensor:
    """Compute the kernel sums [b, b'] without random features, from all b x b' x K x K' pairs of points at once."""
    v, u = F.normalize(image.points, dim=-1), F.normalize(text.points, dim=-1)
    inner = torch.einsum("ikd,jld->ijkl", v, u)
    pairs = alpha[0] * inner + alpha[1] * KERNELS[kernel]((2 - 2 * inner).clamp(min=0), width)
    sums = torch.einsum("ik,jl,ijkl->ij", image.weights, text.weights, pairs)
    return sums * REDUCTIONS[reduce](v.shape[1]) * REDUCTIONS[reduce](u.shape[1])


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_embeddings_and_similarities_match_the_golden_values(reduce: str) -> None:
    image, text = (
        embed(golden_set(side), WPSE["alpha"], golden("omega"), golden("beta"), reduce) for side in ("image", "text")
    )
    for found, expected in ((image, "image"), (text, "text"), (image @ text.T, "similarity")):
        reference = torch.tensor(WPSE[reduce][expected], dtype=torch.float64)
        torch.testing.assert_close(found, reference, atol=1e-9, rtol=0)


@pytest.mark.parametrize("kernel", ["gaussian", "imq"])
def test_the_error_of_random_features_falls_with_the_root_of_their_number(kernel: str) -> None:
    image, text = random_set(6, 5, 8, 1), random_set(6, 5, 8, 2)
    exact = exact_similarity(image, text, kernel, 0.75, (0.0, 1.0))
    errors = []
    for count in (256, 4096, 65536):
        squared = []
        for draw in range(8):
            omega, beta = sample_frequencies(kernel, 0.75, 8, count, rng.generator(draw, count))
            similarity = embed(image, (0.0, 1.0), omega, beta) @ embed(text, (0.0, 1.0), omega, beta).T
            squared.append((similarity - exact).square().mean())
        errors.append(math.sqrt(torch.stack(squared).mean()))
    slopes = [math.log(b / a) / math.log(16) for a, b in pairwise(errors)]
    assert all(-0.65 < slope < -0.35 for slope in slopes), (errors, slopes)


def test_values_and_gradients_equal_those_without_chunks_for_every_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    omega, beta = sample_frequencies(kernel="gaussian", width=0.75, dim=6, count=32, generator=rng.generator(0))
    cotangent = torch.randn(7, 6 + 32, generator=rng.generator(9), dtype=torch.float64)
    sets = random_set(7, 4, 6, 0)
    leaves = sets.points.requires_grad_(), sets.weights.requires_grad_()
    unit = F.normalize(sets.points, dim=-1)
    features = math.sqrt(2 / 32) * torch.cos(unit @ omega.double().T + beta.double())
    plain = (sets.weights[..., None] * torch.cat([unit, features], dim=-1) * math.sqrt(0.5)).mean(dim=1)
    expected = plain, *torch.autograd.grad((plain * cotangent).sum(), leaves)
    for chunk in (1 << 22, 2 * 4 * 32, 1):  # all sets, two sets or one set per chunk
        monkeypatch.setattr(kernels, "CHUNK", chunk)
        out = embed(sets, ALPHA, omega, beta)
        found = out, *torch.autograd.grad((out * cotangent).sum(), leaves)
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_blocks_of_tokens_and_features_stay_within_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CHUNK", 2 * 50 * 64)
    sizes, plain = [], kernels._phases

    def phases(points: Tensor, omega: Tensor, beta: Tensor) -> Tensor:
        block = plain(points, omega, beta)
        sizes.append(block.numel())
        return block

    monkeypatch.setattr(kernels, "_phases", phases)
    sets = random_set(9, 50, 8, 0)
    sets.points.requires_grad_()
    embedded = embed(sets, ALPHA, *sample_frequencies("imq", 1.0, 8, 64, rng.generator(0)))
    torch.autograd.grad(embedded.sum(), sets.points)
    assert max(sizes) == 2 * 50 * 64
    assert sum(sizes) == 2 * 9 * 50 * 64  # forward and backward
