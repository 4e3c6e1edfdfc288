"""Sample order: every epoch is an exact permutation; with blocks, it is nearly as random as without."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipx.config.schema import TrainConfig
from clipx.data import sampler
from clipx.data.sampler import CHUNK_BLOCKS, EpochOrder, Sampler, num_train, pairs_of, split_held_out


@settings(max_examples=60)
@given(st.integers(1, 3000), st.integers(0, 9), st.integers(0, 3), st.integers(0, 3), st.data())
def test_every_epoch_is_a_permutation_of_which_a_slice_does_not_depend_on_earlier_calls(
    n: int, block: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    begin, other = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    end = data.draw(st.integers(begin + 1, n))
    whole, order = EpochOrder(n, seed, epoch, block).ids(0, n).tolist(), EpochOrder(n, seed, epoch, block)
    order.ids(other, n)  # an earlier call
    assert order.ids(begin, end).tolist() == whole[begin:end] and sorted(whole) == list(range(n))


def test_an_order_in_many_chunks_is_a_uniform_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    """With chunks of about 4 samples, a chi-squared test finds no relation between ids and positions."""
    monkeypatch.setattr(sampler, "CHUNK_SAMPLES", 4)
    n, epochs = 40, 400
    orders = np.array([EpochOrder(n, 0, epoch, 0).ids(0, n) for epoch in range(epochs)])
    assert (np.sort(orders) == np.arange(n)).all()
    order = EpochOrder(n, 0, 7, 0)
    assert [int(i) for k in range(0, n, 8) for i in order.ids(k, k + 8)] == orders[7].tolist()
    counts = np.array([np.bincount(orders[:, position], minlength=n) for position in range(n)])
    statistic = ((counts - epochs / n) ** 2 / (epochs / n)).sum()
    degrees_of_freedom = (n - 1) ** 2
    assert abs(statistic - degrees_of_freedom) < 5 * np.sqrt(2 * degrees_of_freedom)
    neighbours = np.mean(np.abs(np.diff(orders)) == 1)  # expectation for a uniform permutation: 2 / n
    assert neighbours == pytest.approx(2 / n, rel=0.1)


def test_small_data_sets_keep_the_order_of_earlier_versions() -> None:
    """Golden values: runs with the same seed must stay comparable across versions."""
    assert EpochOrder(10, 3, 1, 0).ids(0, 10).tolist() == [6, 5, 3, 1, 2, 0, 7, 4, 8, 9]
    assert EpochOrder(10, 3, 1, 2).ids(0, 10).tolist() == [4, 1, 9, 3, 8, 2, 5, 0, 6, 7]


def test_each_chunk_is_shuffled_in_its_own_way() -> None:
    order = EpochOrder(2 * CHUNK_BLOCKS, 0, 0, block=1)
    ids = order.ids(0, 2 * CHUNK_BLOCKS).reshape(2, -1).tolist()
    first, second = ([order._unshuffled(k).tolist().index(i) for i in ids[k]] for k in (0, 1))
    assert first != second


def test_a_fingerprint_starts_with_the_number_of_pairs_or_has_none() -> None:
    fingerprints = ("12:abc", "generated", None, "²:abc", f"{10**20}:abc")
    assert [pairs_of(fingerprint) for fingerprint in fingerprints] == [12, None, None, None, None]


def test_pairs_held_out_by_earlier_versions_stay_held_out() -> None:
    """Golden values: a resumed run must not train on held-out samples."""
    train, held_out = split_held_out(12, 0.3)
    assert held_out.tolist() == [6, 10, 8, 1] and sorted([*train, *held_out]) == list(range(12))


@pytest.mark.parametrize("image_of", [None, np.arange(60, dtype=np.int32) // 3], ids=["images", "captions"])
def test_an_epoch_has_all_pairs_but_those_held_out(image_of: np.ndarray | None) -> None:
    ranks = [Sampler(60, TrainConfig(epochs=2, batch_size=10), 0, r, 2, 0.3, image_of=image_of) for r in range(2)]
    train, _ = split_held_out(60, 0.3, image_of)
    for epoch in range(2):
        trained = [key for rank in ranks for batch in list(rank.batches(0))[4 * epoch : 4 * epoch + 4] for key in batch]
        assert len(trained) == 40 and len(set(trained)) == 40
        assert {at for at, _ in trained} == {epoch} and {number for _, number in trained} < set(train.tolist())


@given(st.lists(st.integers(1, 7), min_size=1, max_size=30), st.floats(0, 1))
def test_an_image_is_held_out_with_all_its_captions(captions: list[int], share: float) -> None:
    image_of = np.random.default_rng(0).permutation(np.repeat(np.arange(len(captions)), captions)).astype(np.int32)
    train, held_out = split_held_out(len(image_of), share, image_of)
    assert len(train) == num_train(len(image_of), share) and (np.diff(train) > 0).all()
    assert not set(image_of[train]) & set(image_of[held_out])
    assert len(set(held_out.tolist())) == len(held_out)
    assert len(image_of) - len(train) - len(held_out) < max(captions)  # dropped captions of one image
    for image in set(image_of[held_out].tolist()):
        assert (image_of[held_out] == image).sum() == captions[image]
    firsts = image_of[held_out][: len(set(image_of[held_out].tolist()))]
    assert len(set(firsts.tolist())) == len(firsts)  # held_out starts with one caption of each image


def test_the_number_of_captions_does_not_change_the_chance_of_being_held_out() -> None:
    """Of 200 images with one caption and 200 with nine, about equal numbers are held out."""
    image_of = np.repeat(np.arange(400), [1] * 200 + [9] * 200).astype(np.int32)
    _, held_out = split_held_out(len(image_of), 0.5, image_of)
    images = np.unique(image_of[held_out])
    assert abs((images < 200).mean() - 0.5) < 0.1


def test_an_order_with_blocks_is_nearly_random() -> None:
    """In a batch of 256 from a chunk of 256 blocks, about 1 in 256 sample pairs is from the same block."""
    n, batch, block = 100_000, 256, 64
    ids = EpochOrder(n, 0, 0, block).ids(0, n)
    batches = ids[: n // batch * batch].reshape(-1, batch) // block
    pairs = [sum(c * (c - 1) / 2 for c in np.unique(b, return_counts=True)[1]) for b in batches]
    # a batch of whole blocks would have batch x (block - 1) / 2 such pairs
    assert np.mean(pairs) < 1.15 * batch * (batch - 1) / 2 / CHUNK_BLOCKS
    assert abs(np.corrcoef(ids, np.arange(n))[0, 1]) < 0.1
    again = EpochOrder(n, 0, 1, block).ids(0, n)
    assert np.mean(ids == again) < 0.001
