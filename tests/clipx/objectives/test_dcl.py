"""The debiased loss against a plain double loop, with Ng (the debiased sum of negatives) above and at its bound."""

import math

import pytest
import torch
from torch import Tensor

from tests.helpers.pairs import embed, loss_of, random_pairs


def one_direction(s: list[list[float]], tau: float, tau_plus: float) -> tuple[float, int]:
    """Return the loss and the number of anchors at the lower bound of Ng."""
    B = len(s)
    N = B - 1
    total, bounded = 0.0, 0
    for i in range(B):
        negatives = sum(math.exp(s[i][j] / tau) for j in range(B) if j != i)
        positive = math.exp(s[i][i] / tau)
        debiased, bound = (negatives - tau_plus * N * positive) / (1 - tau_plus), N * math.exp(-1 / tau)
        total -= math.log(positive / (positive + max(debiased, bound)))
        bounded += debiased < bound
    return total / B, bounded


def by_loops(image: Tensor, text: Tensor, tau: float, tau_plus: float) -> tuple[float, int]:
    s = (image @ text.T).tolist()
    a, b = (
        one_direction(s, tau, tau_plus),
        one_direction([list(column) for column in zip(*s, strict=True)], tau, tau_plus),
    )
    return (a[0] + b[0]) / 2, a[1] + b[1]


@pytest.mark.parametrize("tau_plus", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("shift", "bounded"), [(0.0, False), (1.0, True)])
def test_loss_matches_the_papers_double_loop(tau_plus: float, shift: float, bounded: bool) -> None:
    image, text = random_pairs(6, 4)
    text = torch.nn.functional.normalize(text + shift * image, dim=-1)
    expected, at_bound = by_loops(image, text, 0.3, tau_plus)
    if tau_plus:
        assert (at_bound >= 3) == bounded, "the number of anchors at the bound is not as intended"
    loss = loss_of({"dcl": {"tau_plus": tau_plus}}, embed(image, text, 1 / 0.3)).total.item()
    assert abs(loss - expected) < 1e-12
