"""Claims 5.6, 5.9, 5.10: fits against an independent implementation, risks and divergences against plain sums."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from clipx.theory import paper5
from clipx.theory.experiment import Array
from clipx.theory.paper5 import (
    Labelling,
    PmiSettings,
    claims,
    divergences,
    fit,
    inner_product,
    mutual_information,
    nce,
    point_sets,
    pointwise_mutual_information,
    slack_of_4_2,
    slack_of_4_4,
    solve,
)

SETTINGS = PmiSettings(iterations=400, starts=1)


@pytest.fixture(autouse=True)
def fewer_joints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the theorems on 20 random distributions instead of 200."""
    monkeypatch.setattr(paper5, "JOINTS", 20)


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


def test_the_start_with_the_smallest_loss_counts(p: Array) -> None:
    one, two = (
        fit(inner_product, (2, 16, 2), p, replace(SETTINGS, starts=starts), np.random.default_rng(0))[0]
        for starts in (1, 2)
    )
    assert two < one  # the second start is better for this generator


def test_claims_hold_and_fail_if_points_with_the_linear_kernel_come_near_the_bound() -> None:
    result = solve(PmiSettings(iterations=200, starts=1, d=(2, 4), M=(1, 4)))
    assert {claim.claim: claim.verdict for claim in claims(result)} == dict.fromkeys(("5.6", "5.9", "5.10"), "holds")
    assert result.linear_points == pytest.approx(result.inner_product[2], rel=0.05)
    near_the_bound = replace(result, linear_points=result.point_sets[4])
    assert claims(near_the_bound)[0].verdict == "does not hold"


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


@pytest.fixture
def case() -> tuple[Array, Labelling, Array]:
    rng = np.random.default_rng(0)
    p = np.exp(rng.standard_normal((5, 5)))
    p /= p.sum()
    p_label = np.exp(rng.standard_normal((5, 2)))
    labels = Labelling(np.array([0, 1, 0, -1, 1]), p_label / p_label.sum(axis=1, keepdims=True))
    return p, labels, rng.standard_normal((5, 5))


def members(labels: Labelling, c: int) -> list[int]:
    return [y for y, of in enumerate(labels.of_text) if of == c]


def test_the_excess_risk_equals_a_plain_sum_over_images_and_labels(case: tuple[Array, Labelling, Array]) -> None:
    p, labels, g = case
    found = 0.0
    for x in range(5):
        h = []
        for c in range(2):
            mass = sum(p[i, y] for i in range(5) for y in members(labels, c))
            mean = sum(p[i, y] / mass * g[x, y] for i in range(5) for y in members(labels, c))
            h.append(mean + math.log(mass))
        total = sum(math.exp(one) for one in h)
        for c in range(2):
            joint = sum(p[x]) * labels.p_label[x, c]
            found += joint * (math.log(labels.p_label[x, c]) - math.log(math.exp(h[c]) / total))
    assert paper5.excess_risk(g, p, labels) == pytest.approx(found, rel=1e-12)


def test_the_divergences_equal_plain_sums(case: tuple[Array, Labelling, Array]) -> None:
    p, labels, _ = case
    first, second = divergences(p, labels)
    for x in range(5):
        masses = [sum(p[x, y] for y in members(labels, c)) for c in range(2)]
        expected = 0.0
        for c in range(2):
            expected += labels.p_label[x, c] * math.log(labels.p_label[x, c] / (masses[c] / sum(masses)))
            p_y = {y: sum(p[i, y] for i in range(5)) for y in members(labels, c)}
            inside = 0.0
            for y, mass in p_y.items():
                prior = mass / sum(p_y.values())
                inside += prior * math.log(prior / (p[x, y] / masses[c]))
            assert second[x, c] == pytest.approx(inside, rel=1e-12)
        assert first[x] == pytest.approx(expected, rel=1e-12)


def test_both_bounds_are_exact_without_divergence_and_without_error() -> None:
    rng = np.random.default_rng(1)
    joint, labels = paper5.without_divergence(np.exp(rng.standard_normal((6, 6))) / 6, 3, rng)
    g = pointwise_mutual_information(joint)
    assert slack_of_4_2(joint, labels) == pytest.approx(0, abs=1e-12)
    assert slack_of_4_4(g + 5.0, joint, labels) == pytest.approx(0, abs=1e-12)
    g[0, 0] += 1.0
    assert slack_of_4_4(g, joint, labels) > 0


def test_a_wrong_similarity_has_a_risk_above_the_bound_of_4_2() -> None:
    rng = np.random.default_rng(0)
    ideal, labels = paper5.without_divergence(np.ones((8, 8)) / 64, 4, rng)
    wrong = pointwise_mutual_information(ideal)
    wrong[:, labels.of_text == 0] += 2.0 * rng.standard_normal((8, 1))
    assert paper5.excess_risk(wrong, ideal, labels) > 0.1
