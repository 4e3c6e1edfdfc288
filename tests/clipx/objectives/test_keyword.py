"""The keyword term against a plain double loop, and batches without true negatives."""

import math
from itertools import product

import pytest
from torch import Tensor

from tests.helpers.pairs import embed, loss_of, random_pairs, value_and_gradients

VARIANTS = list(product(("log1p", "ratio"), ("own", "same_label")))


def by_loops(image: Tensor, text: Tensor, label: list[int], tau: float, g: str, denominator: str) -> float:
    B = len(image)
    s = [[math.exp(float(image[i] @ text[j]) / tau) for j in range(B)] for i in range(B)]
    total = 0.0
    for i in range(B):
        if label[i] == 0:
            continue
        negatives = sum(s[i][j] for j in range(B) if label[j] not in (0, label[i]))
        same = sum(s[i][j] for j in range(B) if label[j] == label[i])
        x = negatives / (s[i][i] if denominator == "own" else same)
        total += math.log(1 + x) if g == "log1p" else x / (1 + x)
    return total / B


@pytest.mark.parametrize(("g", "denominator"), VARIANTS)
@pytest.mark.parametrize("label", [[2, 3, 0, 2, 4, 0, 3], [1, 2, 3, 4, 5, 6, 7]])
def test_loss_matches_the_papers_double_loop(label: list[int], g: str, denominator: str) -> None:
    image, text = random_pairs(7, 4)
    loss = loss_of({"keyword": {"g": g, "denominator": denominator}}, embed(image, text, 5.0, label)).total.item()
    assert abs(loss - by_loops(image, text, label, 0.2, g, denominator)) < 1e-12


@pytest.mark.parametrize(("g", "denominator"), VARIANTS)
@pytest.mark.parametrize("label", [[0, 0, 0, 0], [0, 3, 3, 0]])
def test_batches_without_true_negatives_give_zero(label: list[int], g: str, denominator: str) -> None:
    image, text = (t.float() for t in random_pairs(4, 3))
    loss, gradients = value_and_gradients(
        {"keyword": {"g": g, "denominator": denominator}}, embed(image, text, 100.0, label)
    )
    assert loss == 0
    assert not any(gradient.any() for gradient in gradients.values())
