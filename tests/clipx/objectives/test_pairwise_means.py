"""The positive and the negative term against plain loops and closed forms."""

import torch

from tests.helpers.pairs import embed, loss_of, random_pairs, value_and_gradients


def test_positive_matches_the_papers_sum_and_half_the_squared_distance_minus_one() -> None:
    image, text = random_pairs(5, 3)
    loss = loss_of({"positive": {}}, embed(image, text, 10.0)).total.item()
    assert abs(loss + sum(float(image[i] @ text[i]) for i in range(5)) / 5) < 1e-14
    assert abs(loss - float((image - text).square().sum(dim=1).mean() / 2 - 1)) < 1e-14


def test_negative_is_the_mean_over_negative_pairs() -> None:
    image, text = random_pairs(5, 3)
    negatives = [float(image[i] @ text[j]) for i in range(5) for j in range(5) if i != j]
    assert abs(loss_of({"negative": {}}, embed(image, text, 10.0)).total.item() - sum(negatives) / 20) < 1e-14


def test_a_batch_of_one_pair_gives_zero() -> None:
    loss, gradients = value_and_gradients({"negative": {}}, embed(*random_pairs(1, 3), 10.0))
    assert abs(loss.item()) < 1e-15
    assert gradients["image"].abs().max() < 1e-15


def test_negative_stays_precise_in_a_large_float32_batch() -> None:
    image, text = random_pairs(2000, 16)
    exact = loss_of({"negative": {}}, embed(image, text, 10.0)).total.item()
    single = loss_of({"negative": {}}, embed(image.float(), text.float(), 10.0)).total.item()
    assert abs(single - exact) < 1e-8


def test_the_temperature_does_not_change_positive_and_negative() -> None:
    pairs = random_pairs(5, 3)
    for name in ("positive", "negative"):
        cold, warm = (loss_of({name: {}}, embed(*pairs, scale)).total for scale in (100.0, 1.0))
        assert torch.equal(cold, warm)
