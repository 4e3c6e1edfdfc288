"""NegCLIP's loss against a plain double loop."""

import math

import pytest
import torch

from tests.helpers.pairs import embed, loss_of, negatives_of, random_pairs, value_and_gradients

SCALE = 4.0


def by_loops(image: torch.Tensor, text: torch.Tensor, negative: torch.Tensor) -> float:
    """Return the mean of both directions: images against texts and hard captions, texts against images.

    The authors' repository (vinid/neg_clip) was not available; this follows the copy of its loss in wujianP/fineCLIP,
    neg_clip/src/open_clip/loss.py at 2199f9b32936fdeabe5900ee464acc354fc8003d, and neg_clip/src/training/train.py.
    """
    B, texts = len(image), torch.cat([text, negative])
    z = (SCALE * image @ texts.T).tolist()
    total = 0.0
    for i in range(B):
        total += math.log(sum(math.exp(z[i][j]) for j in range(2 * B))) - z[i][i]
        total += math.log(sum(math.exp(z[j][i]) for j in range(B))) - z[i][i]
    return total / B / 2


@pytest.mark.parametrize("B", [1, 2, 7])
def test_loss_matches_the_double_loop(B: int) -> None:
    image, text = random_pairs(B, 4)
    found = loss_of({"negclip": {}}, embed(image, text, SCALE)).total.item()
    assert abs(found - by_loops(image, text, negatives_of(text))) < 1e-9


def test_gradients_match_torchs_own() -> None:
    given = embed(*random_pairs(6, 4), SCALE)
    assert given.negative_text is not None
    given.negative_text.requires_grad_()
    _, found = value_and_gradients({"negclip": {}}, given)
    image, text, negative = (v.detach().requires_grad_() for v in (given.image, given.text, given.negative_text))
    scale = given.scale.clone().requires_grad_()
    logits, pairs = scale * image @ torch.cat([text, negative]).T, torch.arange(6)
    entropy = torch.nn.functional.cross_entropy
    loss = (entropy(logits, pairs) + entropy(logits[:, :6].T, pairs)) / 2
    expected = torch.autograd.grad(loss, [image, text, scale, negative])
    for name, gradient in zip(("image", "text", "scale"), expected, strict=False):
        assert (found[name] - gradient).abs().max() < 1e-9, name
    assert given.negative_text.grad is not None
    assert (given.negative_text.grad - expected[3]).abs().max() < 1e-9


def test_negatives_that_are_far_from_every_image_leave_clips_loss() -> None:
    image = torch.eye(3, dtype=torch.float64)
    given = embed(image, image.roll(1, 0), 200.0)
    given.negative_text = -torch.ones_like(image)
    clip = loss_of({"clip": {}}, given).total
    assert torch.isclose(loss_of({"negclip": {}}, given).total, clip, rtol=1e-12)
