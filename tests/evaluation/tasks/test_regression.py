"""Logistic regression against scikit-learn at the same C, and the search for C."""

import pytest
import torch

from evaluation.tasks.linear_probe import GRID, Regression, search
from tests.helpers.linear_probe import CLASSES, problem


@pytest.mark.parametrize("C", [1e-2, 1.0, 30.0, 1e3])
def test_weights_and_accuracy_equal_scikit_learns_at_the_same_c(C: float) -> None:
    from sklearn.linear_model import LogisticRegression

    (features, label), (unseen, truth) = problem(900, 1), problem(2000, 2)
    reference = LogisticRegression(C=C, tol=1e-8, max_iter=5000).fit(features.double().numpy(), label.numpy())
    ours = Regression(features, label, CLASSES).fit(C)
    weight = torch.from_numpy(reference.coef_).T
    assert float((ours.weight - weight).norm() / weight.norm()) < 0.01
    accuracy = float((ours(unseen).argmax(dim=1) == truth).double().mean())
    assert abs(accuracy - reference.score(unseen.double().numpy(), truth.numpy())) <= 0.002


def test_a_warm_start_leads_to_the_same_minimum() -> None:
    features, label = problem(400, 4)
    regression = Regression(features, label, CLASSES)
    cold, warm = regression.fit(10.0), regression.fit(10.0, start=regression.fit(0.01))
    torch.testing.assert_close(cold.weight, warm.weight, atol=2e-3, rtol=2e-3)


def test_fits_repeat_bit_for_bit() -> None:
    features, label = problem(300, 5)
    first, second = (Regression(features, label, CLASSES).fit(3.0) for _ in range(2))
    assert torch.equal(first.weight, second.weight) and torch.equal(first.bias, second.bias)


def test_features_of_rank_one_with_an_absent_class_are_fitted() -> None:
    features = torch.linspace(-1, 1, 40)[:, None] * torch.ones(1, 8)
    label = (features[:, 0] > 0).long() * 2  # class 1 never occurs
    assert torch.equal(Regression(features, label, 3).fit(1e4)(features).argmax(dim=1), label)


def test_the_search_chooses_the_smallest_of_the_best_c() -> None:
    (features, label), (unseen, truth) = problem(300, 6), problem(300, 7)
    found = search(Regression(features, label, CLASSES), unseen, truth)
    top = max(found.accuracy_of.values())
    assert found.best == min(index for index, value in found.accuracy_of.items() if value == top)
    assert {0, 16, 32, 48, 64, 80, 96} <= set(found.accuracy_of) and len(found.accuracy_of) <= 15
    assert {found.best - 1, found.best + 1} <= set(found.accuracy_of) | {-1, 97}


def test_the_grid_has_eight_points_per_decade_from_1e_minus_6_to_1e6() -> None:
    assert len(GRID) == 97
    assert (GRID[0], GRID[48], GRID[-1]) == pytest.approx((1e-6, 1.0, 1e6))
    assert GRID[8] / GRID[0] == pytest.approx(10.0)
