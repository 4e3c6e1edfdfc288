"""SigLIP against a plain double loop and closed forms."""

import math

import pytest
import torch

from tests.helpers.pairs import embed, loss_of, random_pairs


@pytest.mark.parametrize(("t", "b"), [(10.0, -10.0), (3.0, 1.0)])
def test_loss_matches_the_papers_double_loop(t: float, b: float) -> None:
    image, text = random_pairs(6, 4)
    total = 0.0
    for i in range(6):
        for j in range(6):
            y = 1 if i == j else -1
            total -= math.log(1 / (1 + math.exp(-y * (t * float(image[i] @ text[j]) + b))))
    assert abs(loss_of({"siglip": {}}, embed(image, text, t, bias=b)).total.item() - total / 6) < 1e-12


def test_orthogonal_pairs_have_a_closed_form() -> None:
    one = torch.eye(5, dtype=torch.float64)
    loss = loss_of({"siglip": {}}, embed(one, one, 10.0, bias=-10.0)).total.item()
    assert abs(loss - (math.log(2) + 4 * math.log1p(math.exp(-10)))) < 1e-12


def test_a_tiny_loss_stays_precise_in_float32() -> None:
    image = torch.eye(2)
    loss = loss_of({"siglip": {}}, embed(image, image, 60.0, bias=-30.0)).total.item()
    assert loss == pytest.approx(2 * math.exp(-30), rel=1e-5)
