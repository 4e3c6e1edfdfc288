"""The linear probe: logistic regression against scikit-learn at the same C, the search for C, and the task."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.datasets.kinds import Labelled
from evaluation.tasks.linear_probe import GRID, Linear, LinearProbe, Regression, search
from evaluation.tasks.linear_probe import _split as split_rows
from evaluation.types import Features
from tests.helpers import fakes

TASK = LinearProbe()
CLASSES = 4
PROBLEM_CLASSES = 5


def problem(n: int, seed: int, noise: float = 6.0) -> tuple[Tensor, Tensor]:
    """Return normalised features with a large common mean, and labels; every seed has the same class centres."""
    centres = torch.randn(PROBLEM_CLASSES, 48, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(PROBLEM_CLASSES, (n,), generator=generator)
    features = centres[label] + noise * torch.linspace(1, 0.05, 48) * torch.randn(n, 48, generator=generator)
    return F.normalize(features + 4.0, dim=1), label


def dataset(folder: Path, train: int = 240, test: int = 200) -> Labelled:
    return fakes.opened(fakes.labelled(folder, classes=CLASSES, train=train, test=test), Labelled)


def features(data: Labelled, signal: float) -> Features:
    """Return random unit vectors plus `signal` times a unit vector per class."""
    found = {}
    for request in TASK.requests(data):
        label = data.labels(request.split)
        noise = fakes.embeddings(len(label), seed=len(label))
        found[request] = noise + signal * torch.eye(CLASSES, fakes.WIDTH)[label]
    return found


def test_an_official_validation_split_is_used_to_choose_c(tmp_path: Path) -> None:
    samples = [{"cls": str(i % CLASSES).encode(), "png": fakes.picture(i)} for i in range(30)]
    fakes.shard(tmp_path / "val" / "0.tar", samples)
    (tmp_path / "val" / "nshards.txt").write_text("1")
    data = dataset(tmp_path, train=40)
    assert [request.split for request in TASK.requests(data)] == ["train", "val", "test"]
    found = features(data, signal=0.6)
    artifact = TASK.score(data, found).artifact
    assert artifact is not None
    accuracies = torch.tensor(artifact["validation_accuracy"]) * 30
    torch.testing.assert_close(accuracies, accuracies.round())  # multiples of 1/30: scored on val alone


def test_chance_of_unequal_classes_is_the_share_of_the_largest(tmp_path: Path) -> None:
    data = dataset(tmp_path, test=402)
    truth = data.labels("test").tolist()
    top1, mean_per_class = TASK.score(data, features(data, signal=0.0)).results
    assert top1.chance == max(truth.count(c) for c in truth) / len(truth)
    assert mean_per_class.chance == 1 / CLASSES


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_weights_loss_and_accuracy_equal_scikit_learns_at_the_same_c(C: float) -> None:
    from sklearn.linear_model import LogisticRegression

    (features, label), (unseen, truth) = problem(900, 1), problem(2000, 2)
    reference = LogisticRegression(C=C, tol=1e-9, max_iter=10_000).fit(features.double().numpy(), label.numpy())
    ours = Regression(features, label, PROBLEM_CLASSES).fit(C)
    weight, bias = torch.from_numpy(reference.coef_).T, torch.from_numpy(reference.intercept_)
    assert float((ours.weight - weight).norm() / weight.norm()) < 0.01

    def objective(weight: Tensor, bias: Tensor) -> float:
        loss = F.cross_entropy(features.double() @ weight + bias, label, reduction="sum")
        return float(C * loss + 0.5 * weight.square().sum())

    assert objective(ours.weight.double(), ours.bias.double()) == pytest.approx(objective(weight, bias), rel=1e-4)
    accuracy = float((ours(unseen).argmax(dim=1) == truth).double().mean())
    assert abs(accuracy - reference.score(unseen.double().numpy(), truth.numpy())) <= 0.002


def test_fits_repeat_bit_for_bit() -> None:
    features, label = problem(500, 9)
    first, second = (Regression(features, label, PROBLEM_CLASSES).fit(1.0) for _ in range(2))
    assert torch.equal(first.weight, second.weight) and torch.equal(first.bias, second.bias)


def test_classes_that_can_be_separated_are_fitted_to_the_minimum_also_at_large_c() -> None:
    """An earlier minimiser stopped after a step that was much too long, at twelve times the minimum."""
    generator = torch.Generator().manual_seed(0)
    centres, label = torch.randn(50, 256, generator=generator), torch.arange(1000) % 50
    features = F.normalize(centres[label] + torch.randn(1000, 256, generator=generator) + 1.0, dim=1)
    regression = Regression(features, label, 50)

    def objective(C: float, linear: Linear) -> float:
        return float(C * F.cross_entropy(linear(features), label, reduction="sum") + 0.5 * linear.weight.square().sum())

    for C in (1e4, 1e5):
        assert objective(C, regression.fit(C)) < objective(C, regression.fit(C / 10))


def test_features_of_rank_one_with_an_absent_class_are_fitted() -> None:
    features = torch.linspace(-1, 1, 40)[:, None] * torch.ones(1, 8)
    label = (features[:, 0] > 0).long() * 2  # class 1 never occurs
    assert torch.equal(Regression(features, label, 3).fit(1e4)(features).argmax(dim=1), label)


def test_among_equally_accurate_c_the_search_chooses_the_smallest_cross_entropy() -> None:
    (features, label), (unseen, truth) = problem(300, 6), problem(300, 7)
    found, best = search(Regression(features, label, PROBLEM_CLASSES), unseen, truth)
    highest = max(accuracy for accuracy, _ in found.values())
    assert best == min((loss, index) for index, (accuracy, loss) in found.items() if accuracy == highest)[1]
    assert {0, 16, 32, 48, 64, 80, 96} <= set(found) and len(found) <= 15
    assert {best - 1, best + 1} <= set(found) | {-1, 97}


def test_forty_images_are_classified_nearly_as_well_as_the_best_c_allows(tmp_path: Path) -> None:
    """Four of them choose C."""
    data = dataset(tmp_path, train=40)
    found = features(data, signal=0.8)
    train, test = (found[request] for request in TASK.requests(data))
    fit = Regression(train, data.labels("train"), CLASSES)
    truth = data.labels("test")
    possible = max(float((fit.fit(C)(test).argmax(dim=1) == truth).double().mean()) for C in GRID)
    assert TASK.score(data, found).results[0].value > possible - 0.02


def test_validation_rows_have_the_classes_in_their_proportions_and_no_class_loses_its_only_row() -> None:
    label = torch.tensor([0] * 60 + [1] * 30 + [2] * 10 + [3])
    train, validation = split_rows([label])
    assert torch.bincount(label[validation], minlength=4).tolist() == [6, 3, 1, 0]
    assert torch.equal(torch.cat([train, validation]).sort().values, torch.arange(101))
    train, validation = split_rows([torch.tensor([1, 0])])
    assert train.tolist() == validation.tolist() == [0, 1]
