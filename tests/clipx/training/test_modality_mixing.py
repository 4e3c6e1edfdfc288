"""Modality mixing follows the paper's formulas: entries that leave one modality arrive in the other."""

import pytest
import torch

from clipx.training import modality_mixing
from clipx.types import Embeddings
from tests.helpers.pairs import embeddings, pairs

B, E = 64, 32


def mixed(kind: str, probability: float, step: int = 3, seed: int = 0) -> tuple[Embeddings, Embeddings]:
    given = embeddings(*pairs(B, E), torch.arange(B), tau=0.1)
    return given, modality_mixing.build_mixing(kind, probability, seed)(given, step)


@pytest.mark.parametrize("kind", ["hard", "hard_rows", "soft"])
def test_entries_that_leave_one_modality_arrive_in_the_other(kind: str) -> None:
    given, out = mixed(kind, 1.0)
    torch.testing.assert_close(out.image + out.text, given.image + given.text)
    assert not torch.equal(out.image, given.image)
    assert out.scale is given.scale and out.sample_id is given.sample_id


def test_hard_swaps_half_of_the_entries_independently() -> None:
    given, out = mixed("hard", 1.0)
    kept = out.image == given.image
    assert torch.equal(out.image, torch.where(kept, given.image, given.text))
    # 0.055: 5 standard deviations of the mean of 2048 draws; row means have a standard deviation of 0.09, column
    # means of 0.06
    assert abs(kept.double().mean() - 0.5) < 0.055
    assert 0 < kept.double().mean(dim=1).std() < 0.2 and 0 < kept.double().mean(dim=0).std() < 0.2


def test_hard_rows_swaps_whole_rows() -> None:
    given, out = mixed("hard_rows", 1.0)
    kept = (out.image == given.image).all(dim=1)
    assert torch.equal(kept | (out.image == given.text).all(dim=1), torch.ones(B, dtype=torch.bool))
    assert 12 < kept.sum() < 52  # 32 +- 5 standard deviations


def test_soft_draws_its_share_uniformly_for_each_entry() -> None:
    given, out = mixed("soft", 1.0)
    share = ((out.image - given.text) / (given.image - given.text)).flatten().sort().values
    uniform = (torch.arange(len(share)) + 0.5) / len(share)
    assert (share - uniform).abs().max() < 1.63 / len(share) ** 0.5  # Kolmogorov-Smirnov at 1%


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_the_share_of_steps_that_mix_is_p(probability: float) -> None:
    mix, given = modality_mixing.build_mixing("soft", probability, 0), mixed("none", 0.0)[0]
    share = sum(mix(given, step) is not given for step in range(1000)) / 1000
    assert abs(share - probability) <= 5 * (probability * (1 - probability) / 1000) ** 0.5


def test_masks_depend_on_seed_and_step_only() -> None:
    torch.manual_seed(1)
    (_, a), (_, b) = mixed("soft", 1.0), mixed("soft", 1.0)
    assert torch.equal(a.image, b.image)
    assert not torch.equal(a.image, mixed("soft", 1.0, step=4)[1].image)
    assert not torch.equal(a.image, mixed("soft", 1.0, seed=1)[1].image)


def test_the_gradient_of_an_entry_flows_to_the_modality_it_came_from() -> None:
    given, out = mixed("hard", 1.0)
    out.image.sum().backward()  # type: ignore[no-untyped-call]
    kept = (out.image == given.image).double()
    assert given.image.grad is not None and given.text.grad is not None
    assert torch.equal(given.image.grad, kept) and torch.equal(given.text.grad, 1 - kept)
