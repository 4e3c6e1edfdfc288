"""InfoNCE and the sigmoid loss with several positives, against plain double loops."""

import math

import pytest
import torch
from torch import Tensor

from clipx.types import Embeddings
from tests.helpers.pairs import Terms, embed, loss_of, random_pairs, value_and_gradients

SCALE, BIAS = 5.0, -2.0
GROUPS = {
    "some": [4, 9, 4, 0, 9, 4, 7],  # ids need not be consecutive
    "one": [3] * 7,
    "pairs alone": [6, 5, 4, 3, 2, 1, 0],
    "one pair": [8],
}


def batch(group: list[int]) -> Embeddings:
    embeddings = embed(*random_pairs(len(group), 4), SCALE, bias=BIAS)
    embeddings.group = torch.tensor(group)
    return embeddings


def infonce(s: list[list[float]], group: list[int]) -> float:
    """Khosla et al. 2020, eq. 2, from image to text and back, averaged."""
    B, total = len(group), 0.0
    for i in range(B):
        P = [p for p in range(B) if group[p] == group[i]]
        for row in ([s[i][j] for j in range(B)], [s[j][i] for j in range(B)]):
            denominator = sum(math.exp(SCALE * x) for x in row)
            total -= sum(math.log(math.exp(SCALE * row[p]) / denominator) for p in P) / len(P) / B / 2
    return total


def sigmoid_loss(s: list[list[float]], group: list[int]) -> float:
    """Zhai et al. 2023, algorithm 1, with y_ij = 1 within a group."""
    B, total = len(group), 0.0
    for i in range(B):
        for j in range(B):
            y = 1 if group[i] == group[j] else -1
            total += math.log(1 + math.exp(-y * (SCALE * s[i][j] + BIAS))) / B
    return total


TERMS: dict[str, tuple[Terms, object]] = {
    "multi_positive": ({"multi_positive": {}}, infonce),
    "siglip": ({"siglip": {"positives": "group"}}, sigmoid_loss),
}


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("name", TERMS)
def test_loss_matches_the_papers_double_loop(name: str, group: list[int]) -> None:
    embeddings = batch(group)
    terms, by_loops = TERMS[name]
    s = (embeddings.image @ embeddings.text.T).tolist()
    assert callable(by_loops)
    assert abs(loss_of(terms, embeddings).total.item() - by_loops(s, group)) < 1e-9


@pytest.mark.parametrize("name", TERMS)
def test_pairs_alone_in_their_groups_give_the_usual_loss_and_gradients(name: str) -> None:
    usual: Terms = {"clip": {}} if name == "multi_positive" else {"siglip": {}}
    found, gradients = value_and_gradients(TERMS[name][0], batch(GROUPS["pairs alone"]))
    expected, expected_gradients = value_and_gradients(usual, batch(GROUPS["pairs alone"]))
    assert torch.allclose(found, expected, rtol=1e-13)
    for key, gradient in expected_gradients.items():
        assert torch.allclose(gradients[key], gradient, rtol=1e-11, atol=1e-14), key


@pytest.mark.parametrize("name", TERMS)
def test_renaming_the_groups_changes_nothing(name: str) -> None:
    renamed = [100 - 3 * k for k in GROUPS["some"]]
    found, expected = (value_and_gradients(TERMS[name][0], batch(g)) for g in (renamed, GROUPS["some"]))
    gradients: list[dict[str, Tensor]] = [found[1], expected[1]]
    assert found[0].item() == pytest.approx(expected[0].item(), rel=1e-14)
    assert all(torch.allclose(gradients[0][k], gradients[1][k], rtol=1e-12) for k in gradients[1])


def test_the_sum_of_both_directions_is_twice_the_average() -> None:
    average, total = (loss_of({"multi_positive": {"average": a}}, batch(GROUPS["some"])).total for a in (True, False))
    assert torch.allclose(2 * average, total, rtol=1e-14)
