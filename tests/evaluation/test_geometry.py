"""Geometry measures equal golden numbers, a plain loop and known values."""

import math

import pytest
import torch

from evaluation.geometry import alignment, alpha_hat, distribution_gap, margins, min_margin, modality_gap, uniformity
from tests.golden import GOLDEN
from tests.helpers.fakes import embeddings

VALUES = GOLDEN["geometry"]
IMAGE, TEXT = (torch.tensor(VALUES[side], dtype=torch.float64) for side in ("image", "text"))


def test_measures_equal_the_golden_numbers() -> None:
    assert modality_gap(IMAGE, TEXT) == pytest.approx(VALUES["gap"], abs=1e-9)
    assert uniformity(IMAGE, TEXT) == pytest.approx(VALUES["uniformity"], abs=1e-9)
    assert alignment(IMAGE, TEXT) == pytest.approx(VALUES["alignment"], abs=1e-9)
    assert float(margins(IMAGE, TEXT).mean()) == pytest.approx(VALUES["margins_mean"], abs=1e-9)
    assert min_margin(IMAGE, TEXT) == pytest.approx(VALUES["min_margin"], abs=1e-9)
    for gamma, expected in VALUES["alpha_hat"].items():
        assert alpha_hat(IMAGE, TEXT, float(gamma)) == pytest.approx(expected, abs=1e-9)


def test_margins_equal_a_plain_double_loop() -> None:
    n = len(IMAGE)
    rows = [(i, j) for i in range(n) for j in range(n) if i != j]
    other_image = [float(IMAGE[i] @ TEXT[i] - IMAGE[j] @ TEXT[i]) for i, j in rows]
    other_text = [float(IMAGE[i] @ TEXT[i] - IMAGE[i] @ TEXT[j]) for i, j in rows]
    assert margins(IMAGE, TEXT).tolist() == pytest.approx(other_image + other_text, abs=1e-12)


def test_one_pair_has_no_margin() -> None:
    one = embeddings(1, 0)
    assert math.isnan(min_margin(one, one)) and math.isnan(alpha_hat(one, one, 0.0))
    assert len(margins(one, one)) == 0 and distribution_gap(one, one) == 0.0


def test_uniformity_without_covariance_or_with_fewer_rows_than_dimensions_is_finite() -> None:
    same = embeddings(1, 0, dim=8).expand(4000, -1)
    assert uniformity(same, same) == pytest.approx(-(2.0**0.5), abs=1e-6)  # W2^2 = ||mu||^2 + 1 if Sigma = 0
    assert -2.0 < uniformity(embeddings(4, 0, dim=64), embeddings(4, 1, dim=64)) < 0.0


def test_the_distribution_gap_is_the_energy_distance_of_centred_embeddings() -> None:
    image, text = embeddings(7, 0, dim=3).double(), embeddings(7, 1, dim=3).double()
    x, y = ((side - side.mean(dim=0)).tolist() for side in (image, text))

    def mean_distance(a: list[list[float]], b: list[list[float]]) -> float:
        return sum(math.dist(a[i], b[j]) for i in range(7) for j in range(7) if i != j) / 42

    expected = 2 * mean_distance(x, y) - mean_distance(x, x) - mean_distance(y, y)
    assert distribution_gap(image, text) == pytest.approx(expected, abs=1e-9)
