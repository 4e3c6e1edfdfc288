"""Positive, negative and cyclic terms against plain loops and closed forms."""

import pytest
import torch
from torch import Tensor

from tests.helpers.pairs import embed, loss_of, random_pairs, value_and_gradients

TERMS = ("cyclic_inmodal", "cyclic_crossmodal")


def by_loops(name: str, x: Tensor, y: Tensor) -> float:
    B = len(x)
    total = 0.0
    for i in range(B):
        for j in range(B):
            inmodal = float(x[i] @ x[j] - y[i] @ y[j])
            crossmodal = float(x[i] @ y[j] - x[j] @ y[i])
            total += (inmodal if name == "cyclic_inmodal" else crossmodal) ** 2
    return total / B


def rotation(E: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    Q: Tensor = torch.linalg.qr(torch.randn(E, E, dtype=torch.float64, generator=generator))[0]
    return Q


@pytest.mark.parametrize("B", [1, 3, 9])  # fewer than E, and more
@pytest.mark.parametrize("name", TERMS)
def test_loss_matches_the_papers_double_loop(name: str, B: int) -> None:
    x, y = random_pairs(B, 4)
    assert abs(loss_of({name: {}}, embed(x, y, 10.0)).total.item() - by_loops(name, x, y)) < 1e-12


@pytest.mark.parametrize("name", TERMS)
def test_a_small_value_stays_precise_in_float32(name: str) -> None:
    """The E x E formula subtracts nearly equal sums. In float32 the first digit of the result would be wrong here."""
    x, noise = random_pairs(400, 16)
    y = (x @ rotation(16) if name == "cyclic_inmodal" else x) + 1e-3 * noise
    x, y = x.float(), y.float()
    exact = loss_of({name: {}}, embed(x.double(), y.double(), 10.0)).total
    assert torch.allclose(loss_of({name: {}}, embed(x, y, 10.0)).total.double(), exact, rtol=1e-5)


def test_positive_matches_the_papers_sum_and_half_the_squared_distance_minus_one() -> None:
    image, text = random_pairs(5, 3)
    loss = loss_of({"positive": {}}, embed(image, text, 10.0)).total.item()
    assert abs(loss + sum(float(image[i] @ text[i]) for i in range(5)) / 5) < 1e-14
    assert abs(loss - float((image - text).square().sum(dim=1).mean() / 2 - 1)) < 1e-14


def test_negative_is_the_mean_over_negative_pairs() -> None:
    image, text = random_pairs(5, 3)
    negatives = [float(image[i] @ text[j]) for i in range(5) for j in range(5) if i != j]
    assert abs(loss_of({"negative": {}}, embed(image, text, 10.0)).total.item() - sum(negatives) / 20) < 1e-14


@pytest.mark.parametrize("name", ["negative", "dcl"])
def test_a_batch_of_one_pair_gives_zero(name: str) -> None:
    loss, gradients = value_and_gradients({name: {}}, embed(*random_pairs(1, 3), 10.0))
    assert abs(loss.item()) < 1e-15
    assert gradients["image"].abs().max() < 1e-15


def test_negative_stays_precise_in_a_large_float32_batch() -> None:
    image, text = random_pairs(2000, 16)
    exact = loss_of({"negative": {}}, embed(image, text, 10.0)).total.item()
    single = loss_of({"negative": {}}, embed(image.float(), text.float(), 10.0)).total.item()
    assert abs(single - exact) < 1e-8
