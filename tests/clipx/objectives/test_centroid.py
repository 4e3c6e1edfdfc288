"""Uniformity of centroids against a double loop."""

import math

import pytest
import torch
from torch import Tensor

from clipx.errors import UserError
from tests.helpers.pairs import embed, loss_of, random_pairs

T = 1.5


def test_uniformity_of_centroids_is_the_double_loop_of_the_authors_code() -> None:
    """ispamm/ModGap, losses.py (lunif_loss) and main.py at e3dfba689a6acdbddc2224ba75706276c94015ac."""
    image, text = random_pairs(6, 4)
    found = loss_of({"centroid_uniformity": {"t": T}}, embed(image, text, 7.0)).total.item()
    centroids = []
    for x, y in zip(image.tolist(), text.tolist(), strict=True):
        c = [(a + b) / 2 for a, b in zip(x, y, strict=True)]
        length = math.sqrt(sum(a * a for a in c))
        centroids.append([a / length for a in c])
    potentials = [
        math.exp(-T * sum((a - b) ** 2 for a, b in zip(centroids[i], centroids[j], strict=True)))
        for i in range(6)
        for j in range(i + 1, 6)
    ]
    assert abs(found - math.log(sum(potentials) / len(potentials))) < 1e-9


def test_its_gradients_match_finite_differences() -> None:
    def total(image: Tensor, text: Tensor) -> Tensor:
        return loss_of({"centroid_uniformity": {}}, embed(image, text, 7.0)).total

    assert torch.autograd.gradcheck(total, [side.requires_grad_() for side in random_pairs(5, 3)])


def test_one_pair_is_a_user_error() -> None:
    with pytest.raises(UserError, match="needs batches of 2 pairs"):
        loss_of({"centroid_uniformity": {}}, embed(*random_pairs(1, 4), 7.0))
