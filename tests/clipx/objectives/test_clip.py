"""Losses with a softmax over the batch, SigLIP with groups, the counting loss: against loops and closed forms."""

import doctest
import math

import pytest
import torch
import torch.nn.functional as F

from clipx.objectives import clip
from clipx.types import Embeddings
from tests.helpers.pairs import Terms, embed, loss_of, negatives_of, random_pairs, value_and_gradients

NEGCLIP_SCALE = 4.0
COUNTING_SCALE = 6.0
SCALE, BIAS = 5.0, -2.0
GROUPS = {
    "some": [4, 9, 4, 0, 9, 4, 7],  # ids need not be consecutive
    "one": [3] * 7,
    "pairs alone": [6, 5, 4, 3, 2, 1, 0],
    "one pair": [8],
}


def test_the_docstring_example_runs() -> None:
    result = doctest.testmod(clip)
    assert result.attempted and not result.failed


def negclip_by_loops(image: torch.Tensor, text: torch.Tensor, negative: torch.Tensor) -> float:
    """Return the mean of both directions: images against texts and hard captions, texts against images.

    The authors' repository (vinid/neg_clip) was not available; this follows the copy of its loss in wujianP/fineCLIP,
    neg_clip/src/open_clip/loss.py at 2199f9b32936fdeabe5900ee464acc354fc8003d, and neg_clip/src/training/train.py.
    """
    B, texts = len(image), torch.cat([text, negative])
    z = (NEGCLIP_SCALE * image @ texts.T).tolist()
    total = 0.0
    for i in range(B):
        total += math.log(sum(math.exp(z[i][j]) for j in range(2 * B))) - z[i][i]
        total += math.log(sum(math.exp(z[j][i]) for j in range(B))) - z[i][i]
    return total / B / 2


@pytest.mark.parametrize("B", [1, 7])
def test_negclip_matches_the_double_loop(B: int) -> None:
    image, text = random_pairs(B, 4)
    found = loss_of({"negclip": {}}, embed(image, text, NEGCLIP_SCALE)).total.item()
    assert abs(found - negclip_by_loops(image, text, negatives_of(text))) < 1e-9


def test_gradients_of_negclip_match_torchs_own() -> None:
    given = embed(*random_pairs(6, 4), NEGCLIP_SCALE)
    assert given.negative_text is not None
    given.negative_text.requires_grad_()
    _, found = value_and_gradients({"negclip": {}}, given)
    image, text, negative = (v.detach().requires_grad_() for v in (given.image, given.text, given.negative_text))
    scale = given.scale.clone().requires_grad_()
    logits, pairs = scale * image @ torch.cat([text, negative]).T, torch.arange(6)
    loss = (F.cross_entropy(logits, pairs) + F.cross_entropy(logits[:, :6].T, pairs)) / 2
    expected = torch.autograd.grad(loss, [image, text, scale, negative])
    for name, gradient in zip(("image", "text", "scale"), expected, strict=False):
        assert (found[name] - gradient).abs().max() < 1e-9, name
    assert given.negative_text.grad is not None
    assert (given.negative_text.grad - expected[3]).abs().max() < 1e-9


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


@pytest.mark.parametrize("name", GROUPS)
def test_losses_match_the_papers_double_loop(name: str) -> None:
    embeddings = batch(GROUPS[name])
    s = (embeddings.image @ embeddings.text.T).tolist()
    cases: list[tuple[Terms, float]] = [
        ({"multi_positive": {}}, infonce(s, GROUPS[name])),
        ({"multi_positive": {"average": False}}, 2 * infonce(s, GROUPS[name])),
        ({"siglip": {"positives": "group"}}, sigmoid_loss(s, GROUPS[name])),
    ]
    if name in ("pairs alone", "one pair"):
        cases += [({"clip": {}}, infonce(s, GROUPS[name]))]
        cases += [({"clip": {"average": False}}, 2 * infonce(s, GROUPS[name]))]
    for terms, expected in cases:
        assert abs(loss_of(terms, embeddings).total.item() - expected) < 1e-9, terms


def test_a_tiny_sigmoid_loss_stays_precise_in_float32() -> None:
    image = torch.eye(2)
    found = loss_of({"siglip": {}}, embed(image, image, 60.0, bias=-30.0)).total.item()
    assert found == pytest.approx(2 * math.exp(-30), rel=1e-5)


@pytest.mark.parametrize(("scaled", "factor"), [(False, 1.0), (True, COUNTING_SCALE)])
def test_the_counting_loss_is_the_papers_sum(scaled: bool, factor: float) -> None:
    image, text = random_pairs(5, 4)
    negative, total = negatives_of(text), 0.0
    for x, y, n in zip(image.tolist(), text.tolist(), negative.tolist(), strict=True):
        own = math.exp(factor * sum(a * b for a, b in zip(x, y, strict=True)))
        other = math.exp(factor * sum(a * b for a, b in zip(x, n, strict=True)))
        total -= math.log(own / (own + other)) / 5
    found, gradients = value_and_gradients({"counterfactual": {"scaled": scaled}}, embed(image, text, COUNTING_SCALE))
    assert abs(found.item() - total) < 1e-9
    assert (gradients["scale"] != 0) == scaled
