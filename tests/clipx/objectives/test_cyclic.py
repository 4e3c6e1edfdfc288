"""The cyclic terms against plain loops, for both formulas (B <= E and B > E)."""

import pytest
import torch
from torch import Tensor

from tests.helpers.pairs import embed, loss_of, random_pairs

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


@pytest.mark.parametrize("B", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("name", TERMS)
def test_loss_matches_the_papers_double_loop(name: str, B: int) -> None:
    x, y = random_pairs(B, 4)
    assert abs(loss_of({name: {}}, embed(x, y, 10.0)).total.item() - by_loops(name, x, y)) < 1e-12


@pytest.mark.parametrize("B", [3, 9])
def test_inmodal_is_zero_for_rotated_texts(B: int) -> None:
    x, _ = random_pairs(B, 4)
    assert abs(loss_of({"cyclic_inmodal": {}}, embed(x, x @ rotation(4), 10.0)).total.item()) < 1e-12


@pytest.mark.parametrize("B", [3, 9])
def test_crossmodal_is_zero_for_equal_embeddings(B: int) -> None:
    x, _ = random_pairs(B, 4)
    assert abs(loss_of({"cyclic_crossmodal": {}}, embed(x, x.clone(), 10.0)).total.item()) < 1e-12


@pytest.mark.parametrize("name", TERMS)
def test_a_small_value_stays_precise_in_float32(name: str) -> None:
    """The E x E formula subtracts nearly equal sums. In float32 the first digit of the result would be wrong here."""
    x, noise = random_pairs(400, 16)
    y = (x @ rotation(16) if name == "cyclic_inmodal" else x) + 1e-3 * noise
    x, y = x.float(), y.float()
    exact = loss_of({name: {}}, embed(x.double(), y.double(), 10.0)).total
    assert torch.allclose(loss_of({name: {}}, embed(x, y, 10.0)).total.double(), exact, rtol=1e-5)
