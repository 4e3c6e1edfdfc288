"""The counting loss against plain loops."""

import math

import pytest

from tests.helpers.pairs import embed, negatives_of, random_pairs, value_and_gradients

SCALE = 6.0


@pytest.mark.parametrize(("scaled", "factor"), [(False, 1.0), (True, SCALE)])
def test_the_counting_loss_is_the_papers_sum(scaled: bool, factor: float) -> None:
    image, text = random_pairs(5, 4)
    negative, total = negatives_of(text), 0.0
    for x, y, n in zip(image.tolist(), text.tolist(), negative.tolist(), strict=True):
        own = math.exp(factor * sum(a * b for a, b in zip(x, y, strict=True)))
        other = math.exp(factor * sum(a * b for a, b in zip(x, n, strict=True)))
        total -= math.log(own / (own + other)) / 5
    found, gradients = value_and_gradients({"counterfactual": {"scaled": scaled}}, embed(image, text, SCALE))
    assert abs(found.item() - total) < 1e-9
    assert (gradients["scale"] != 0) == scaled
