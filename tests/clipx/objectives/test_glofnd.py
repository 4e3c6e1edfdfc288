"""GloFND's thresholds: when they are learned, and what they become. test_fastclip.py compares its steps with loops."""

import math

import pytest
import torch

from clipx import objectives
from tests.helpers.pairs import embeddings, fresh, pairs, progress, step

TAU = 0.15


def test_before_the_first_epoch_of_learning_it_is_fastclip_v1() -> None:
    image, text = pairs(6)
    batch = embeddings(image, text, torch.arange(6), TAU)
    at = progress(epoch=3, epochs=10)  # thresholds are learned from epoch 4 on
    found, expected = (
        objective(batch, table.read(torch.arange(6)), at)
        for objective, table in (fresh({name: {}}, 6) for name in ("glofnd", "fastclip_v1"))
    )
    assert found.total.item() == pytest.approx(expected.total.item(), rel=1e-14)
    assert float(found.rows["glofnd_lambda_image"].min()) == 1.0


def test_the_threshold_becomes_the_quantile_of_the_similarities() -> None:
    """All samples in each batch: the share above lambda is then alpha, up to one sample."""
    n, alpha = 41, 0.2
    objective, table = fresh({"glofnd": {"alpha": alpha, "eta": 0.03, "start_epoch": 0}}, n)
    image, text = pairs(n)
    for t in range(200):
        step(objective, table, embeddings(image, text, torch.arange(n), TAU), progress(t, epoch=9))
    s = (image @ text.T).detach()
    s.fill_diagonal_(-2)
    share = (s > table.whole()["glofnd_lambda_image"][:, None]).double().mean(dim=1) * n / (n - 1)
    assert (share - alpha).abs().max() < 0.1 and (share - alpha).abs().mean() < 0.03


def test_anchors_without_a_negative_left_add_no_gradient() -> None:
    """With alpha near 1, all thresholds fall below all similarities."""
    objective, table = fresh({"glofnd": {"alpha": 0.999, "eta": 9.0, "start_epoch": 0}}, 4)
    image, text = pairs(4)
    loss = step(objective, table, embeddings(image, text, torch.arange(4), TAU), progress())
    assert float(table.whole()["glofnd_lambda_image"].max()) == -1.0
    assert loss.total.item() == pytest.approx(2 * TAU * math.log(1e-14))
    assert image.grad is not None and image.grad.abs().max() == 0


def test_a_run_that_ends_before_learning_says_so() -> None:
    lines = objectives.build({"glofnd": {"start_epoch": 5}}, 10).notes(total_epochs=5)
    assert any("no threshold is learned" in line for line in lines)
    assert not objectives.build({"glofnd": {}}, 10).notes(total_epochs=5)
