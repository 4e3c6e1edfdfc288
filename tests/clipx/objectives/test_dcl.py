"""The debiased loss against a plain double loop, on both sides of its lower bound."""

import math

import pytest
import torch
from torch import Tensor

from clipx import objectives
from clipx.errors import UserError
from tests.helpers.pairs import embed, loss_of, random_pairs, value_and_gradients


def one_direction(s: list[list[float]], tau: float, tau_plus: float) -> tuple[float, int]:
    """The loss, and how many anchors are at the lower bound of Ng."""
    B = len(s)
    N = B - 1
    total, bounded = 0.0, 0
    for i in range(B):
        others = sum(math.exp(s[i][j] / tau) for j in range(B) if j != i)
        own = math.exp(s[i][i] / tau)
        left, bound = (others - tau_plus * N * own) / (1 - tau_plus), N * math.exp(-1 / tau)
        total -= math.log(own / (own + max(left, bound)))
        bounded += left < bound
    return total / B, bounded


def by_loops(image: Tensor, text: Tensor, tau: float, tau_plus: float) -> tuple[float, int]:
    s = (image @ text.T).tolist()
    a, b = (
        one_direction(s, tau, tau_plus),
        one_direction([list(column) for column in zip(*s, strict=True)], tau, tau_plus),
    )
    return (a[0] + b[0]) / 2, a[1] + b[1]


@pytest.mark.parametrize("tau_plus", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("lean", "bounded"), [(0.0, False), (1.0, True)])
def test_it_is_the_papers_double_loop(tau_plus: float, lean: float, bounded: bool) -> None:
    image, text = random_pairs(6, 4)
    text = torch.nn.functional.normalize(text + lean * image, dim=-1)
    expected, at_bound = by_loops(image, text, 0.3, tau_plus)
    if tau_plus:
        assert (at_bound >= 3) == bounded, "the case does not test what it says"
    loss = loss_of({"dcl": {"tau_plus": tau_plus}}, embed(image, text, 1 / 0.3)).total.item()
    assert abs(loss - expected) < 1e-12


def test_without_false_negatives_it_is_clip() -> None:
    embeddings = embed(*random_pairs(6, 4), 10.0)
    dcl, dcl_gradients = value_and_gradients({"dcl": {"tau_plus": 0.0}}, embeddings)
    clip, clip_gradients = value_and_gradients({"clip": {}}, embeddings)
    assert torch.allclose(dcl, clip, rtol=1e-12)
    for key, gradient in dcl_gradients.items():
        assert torch.allclose(gradient, clip_gradients[key], atol=1e-12), key


def test_equal_embeddings_give_log_b() -> None:
    same = torch.ones(7, 4, dtype=torch.float64) / 2
    assert abs(loss_of({"dcl": {}}, embed(same, same, 1 / 0.07)).total.item() - math.log(7)) < 1e-12


def test_one_pair_has_nothing_to_contrast() -> None:
    loss, gradients = value_and_gradients({"dcl": {}}, embed(*random_pairs(1, 3), 100.0))
    assert loss == 0
    assert not gradients["image"].any()


@pytest.mark.parametrize("tau_plus", [-0.1, 1, 1.0, 3.0, float("nan")])
def test_a_share_out_of_range_is_refused(tau_plus: float) -> None:
    with pytest.raises(UserError, match=r"objective\.dcl\.tau_plus=.* is out of range; allowed: 0\.\.1, 1 excluded"):
        objectives.build({"dcl": {"tau_plus": tau_plus}}, num_samples=4)


def test_a_share_that_is_no_number_is_refused() -> None:
    with pytest.raises(UserError, match=r"objective\.dcl\.tau_plus='much' must be a float"):
        objectives.build({"dcl": {"tau_plus": "much"}}, num_samples=4)
