"""Uniformity of centroids against a double loop."""

import math

import pytest
import torch
import torch.nn.functional as F

from clipx.errors import UserError
from tests.helpers.pairs import embed, loss_of, random_pairs, value_and_gradients

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


def test_its_gradients_match_torchs_own() -> None:
    image, text = random_pairs(6, 4)
    _, found = value_and_gradients({"centroid_uniformity": {}}, embed(image, text, 7.0))
    leaves = image.clone().requires_grad_(), text.clone().requires_grad_()
    value = torch.pdist(F.normalize((leaves[0] + leaves[1]) / 2, dim=1)).square().mul(-2).exp().mean().log()
    for name, gradient in zip(("image", "text"), torch.autograd.grad(value, leaves), strict=True):
        assert (found[name] - gradient).abs().max() < 1e-9, name
    assert found["scale"] == 0


def test_one_pair_is_a_user_error() -> None:
    with pytest.raises(UserError, match="needs batches of 2 pairs"):
        loss_of({"centroid_uniformity": {}}, embed(*random_pairs(1, 4), 7.0))
