"""The CLIP term against a double loop from the paper and closed forms."""

import doctest
import math

import pytest
import torch
from torch import Tensor

from clipx.objectives import clip
from clipx.types import Loss
from tests.helpers.pairs import embed, loss_of, random_pairs


def loss(image: Tensor, text: Tensor, tau: float, average: bool = True) -> Loss:
    return loss_of({"clip": {"average": average}}, embed(image, text, 1 / tau))


@pytest.mark.parametrize("average", [True, False])
def test_loss_matches_the_papers_double_loop(average: bool) -> None:
    image, text = random_pairs(5, 3)
    tau, B = 0.2, 5
    s = [[float(image[i] @ text[j]) for j in range(B)] for i in range(B)]
    e = [[math.exp(s[i][j] / tau) for j in range(B)] for i in range(B)]
    rows = sum(-math.log(e[i][i] / sum(e[i][j] for j in range(B))) for i in range(B)) / B
    columns = sum(-math.log(e[i][i] / sum(e[j][i] for j in range(B))) for i in range(B)) / B
    expected = (rows + columns) / 2 if average else rows + columns
    assert abs(loss(image, text, tau, average).total.item() - expected) < 1e-12


def test_equal_embeddings_give_log_b() -> None:
    same = torch.ones(7, 4, dtype=torch.float64) / 2
    assert abs(loss(same, same, 0.07).total.item() - math.log(7)) < 1e-12


def test_terms_are_logged_without_their_weight() -> None:
    result = loss_of({"clip": {"weight": 0.5}}, embed(*random_pairs(6, 4), 10.0))
    assert torch.allclose(result.total, 0.5 * result.terms["clip"])
    assert not result.terms["clip"].requires_grad


def test_the_docstring_example_runs() -> None:
    result = doctest.testmod(clip)
    assert result.attempted and not result.failed
