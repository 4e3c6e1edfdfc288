"""Theorems 4.2 and 4.4: risks and divergences against plain sums over the outcomes."""

import math

import numpy as np
import pytest

from clipx.theory.claims import HOLDS
from clipx.theory.experiment import Array
from clipx.theory.paper5 import excess_risk
from clipx.theory.paper5.excess_risk import Labelling, divergences, random_labels, slack_of_4_2, slack_of_4_4
from clipx.theory.paper5.information import pointwise_mutual_information


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
    assert excess_risk.excess_risk(g, p, labels) == pytest.approx(found, rel=1e-12)


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
    joint, labels = excess_risk.without_divergence(np.exp(rng.standard_normal((6, 6))) / 6, 3, rng)
    g = pointwise_mutual_information(joint)
    assert slack_of_4_2(joint, labels) == pytest.approx(0, abs=1e-12)
    assert slack_of_4_4(g + 5.0, joint, labels) == pytest.approx(0, abs=1e-12)
    g[0, 0] += 1.0
    assert slack_of_4_4(g, joint, labels) > 0


def test_both_theorems_hold_and_a_wrong_similarity_has_a_risk_above_the_bound_of_4_2() -> None:
    rng = np.random.default_rng(0)
    p = np.exp(1.5 * rng.standard_normal((8, 8)))
    p /= p.sum()
    for checks in excess_risk.checks(p, {"noise": pointwise_mutual_information(p) + rng.random((8, 8))}, rng):
        assert {check.verdict for check in checks} == {HOLDS}
    ideal, labels = excess_risk.without_divergence(p, 4, rng)
    wrong = pointwise_mutual_information(ideal)
    wrong[:, labels.of_text == 0] += 2.0 * rng.standard_normal((8, 1))
    assert excess_risk.excess_risk(wrong, ideal, labels) > 0.1
    assert random_labels(p, 4, 0.5, rng).p_label.sum(axis=1) == pytest.approx(np.ones(8))
