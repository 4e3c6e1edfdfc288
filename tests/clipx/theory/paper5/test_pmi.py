"""Claims 5.6, 5.9, 5.10; inner products and point sets agree with an independent implementation."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from clipx.theory.claims import FAILS, HOLDS
from clipx.theory.experiment import Array
from clipx.theory.paper5.information import mutual_information, pointwise_mutual_information
from clipx.theory.paper5.pmi import PmiSettings, claims, fit, inner_product, nce, point_sets, solve

SETTINGS = PmiSettings(iterations=400, starts=2)


@pytest.fixture(scope="module")
def p() -> Array:
    """Return the joint distribution on which the independent implementation was run."""
    normal = torch.randn(16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
    p = np.exp(1.5 * normal)
    return np.asarray(p / p.sum())


def test_the_pmi_reaches_the_bound_with_zero_gradient(p: Array) -> None:
    assert mutual_information(p) == pytest.approx(0.772, abs=5e-4)
    value, slope = nce(pointwise_mutual_information(p) + 3.0, p)
    assert value == pytest.approx(-mutual_information(p), abs=1e-12)
    assert np.abs(slope).max() < 1e-12


@pytest.mark.parametrize(
    ("d", "excess", "tolerance"), [(2, 0.337, 0.03), (4, 0.157, 0.02), (8, 0.023, 0.004), (15, 0, 2e-3)]
)
def test_inner_product_stays_above_the_bound_below_full_rank(p: Array, d: int, excess: float, tolerance: float) -> None:
    """The expected numbers are from single fits; local minima differ by up to the tolerance."""
    found = fit(inner_product, (2, 16, d), p, SETTINGS, np.random.default_rng(0))[0] + mutual_information(p)
    assert found == pytest.approx(excess, abs=tolerance)


@pytest.mark.parametrize(
    ("M", "excess", "tolerance"), [(1, 0.224, 0.03), (2, 0.090, 0.05), (4, 0.0069, 0.007), (8, 7e-4, 2e-3)]
)
def test_point_sets_in_two_dimensions_approach_the_bound(p: Array, M: int, excess: float, tolerance: float) -> None:
    similarity = point_sets(SETTINGS.alpha, SETTINGS.sigma)
    found = fit(similarity, (2, 16, M, 3), p, SETTINGS, np.random.default_rng(0))[0] + mutual_information(p)
    assert found <= excess + 0.2 * tolerance
    assert found == pytest.approx(excess, abs=tolerance)


def test_claims_hold_and_fail_if_points_with_the_linear_kernel_come_near_the_bound() -> None:
    result = solve(PmiSettings(iterations=200, starts=1, d=(2, 4), M=(1, 8)))
    assert {claim.claim: claim.verdict for claim in claims(result)} == dict.fromkeys(("5.6", "5.9", "5.10"), HOLDS)
    assert result.linear_points == pytest.approx(result.inner_product[2], rel=0.05)
    near_the_bound = replace(result, linear_points=result.point_sets[8])
    assert claims(near_the_bound)[0].verdict == FAILS


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 5, 2, 3)])
def test_gradients_equal_finite_differences(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    p = rng.random((5, 5))
    p /= p.sum()
    similarity = inner_product if len(shape) == 3 else point_sets((0.4, 0.6), 0.7)
    at, direction = rng.standard_normal((2, *shape))
    g, backward = similarity(at)
    slope = float((backward(nce(g, p)[1]) * direction).sum())
    values = [nce(similarity(at + s * 1e-6 * direction)[0], p)[0] for s in (1, -1)]
    assert slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-6)


def test_point_set_similarity_equals_the_double_sum_over_points() -> None:
    sets = np.random.default_rng(0).standard_normal((2, 3, 2, 4))
    g, _ = point_sets((0.4, 0.6), 0.7)(sets)
    total = 0.0
    for w, *u in sets[0, 1]:
        for v, *q in sets[1, 2]:
            squared = sum((a - b) ** 2 for a, b in zip(u, q, strict=True))
            total += w * v * (0.4 * np.dot(u, q) + 0.6 * np.exp(-squared / (2 * 0.7**2)))
    assert g[1, 2] == pytest.approx(total)
