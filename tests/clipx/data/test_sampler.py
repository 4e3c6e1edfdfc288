"""Orders by blocks: still exact, and nearly as well mixed as an order of single samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clipx.config.schema import TrainConfig
from clipx.data import sampler
from clipx.data.sampler import MIXED, Order, Sampler, num_train, split


@given(st.integers(1, 3000), st.integers(0, 9), st.integers(0, 3), st.integers(0, 3))
def test_every_epoch_is_a_permutation(n: int, block: int, seed: int, epoch: int) -> None:
    assert sorted(Order(n, seed, epoch, block).ids(0, n).tolist()) == list(range(n))


@given(st.integers(1, 3000), st.integers(0, 9), st.data())
def test_any_piece_is_a_piece_of_the_whole(n: int, block: int, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, n - 1))
    end = data.draw(st.integers(begin + 1, n))
    other = data.draw(st.integers(0, n - 1))
    order = Order(n, 0, 0, block)
    order.ids(other, n)  # a piece asked for before changes nothing
    assert order.ids(begin, end).tolist() == Order(n, 0, 0, block).ids(0, n)[begin:end].tolist()


def test_a_large_order_of_samples_is_a_permutation_with_all_places_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of about 4: the place of a sample says nothing about its id."""
    monkeypatch.setattr(sampler, "PIECE", 4)
    n, epochs = 40, 400
    orders = np.array([Order(n, 0, epoch, 0).ids(0, n) for epoch in range(epochs)])
    assert (np.sort(orders) == np.arange(n)).all()
    order = Order(n, 0, 7, 0)
    assert [int(i) for k in range(0, n, 8) for i in order.ids(k, k + 8)] == orders[7].tolist()
    counts = np.array([np.bincount(orders[:, place], minlength=n) for place in range(n)])  # 10 expected in each cell
    statistic = ((counts - epochs / n) ** 2 / (epochs / n)).sum()
    freedom = (n - 1) ** 2
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)
    neighbours = np.mean(np.abs(np.diff(orders)) == 1)  # of independent places 2 in n
    assert neighbours == pytest.approx(2 / n, rel=0.1)


def test_small_data_keep_the_order_that_earlier_runs_had() -> None:
    """Golden: runs with the same seed are compared with each other, whenever they were trained."""
    assert Order(10, 3, 1, 0).ids(0, 10).tolist() == [6, 5, 3, 1, 2, 0, 7, 4, 8, 9]
    assert Order(10, 3, 1, 2).ids(0, 10).tolist() == [4, 1, 9, 3, 8, 2, 5, 0, 6, 7]


def test_ranks_share_the_batches_and_resume_in_them() -> None:
    train = TrainConfig(epochs=2, batch_size=64)
    whole = list(Sampler(3000, train, 0, 0, 1, block=2).batches(0))
    parts = [list(Sampler(3000, train, 0, rank, 4, block=2).batches(37)) for rank in range(4)]
    assert [[index for part in parts for index in part[i]] for i in range(len(parts[0]))] == whole[37:]


def test_pairs_held_out_by_earlier_runs_stay_held_out() -> None:
    """Golden: a resumed run must not train on what it has measured."""
    train, held_out = split(12, 0.3)
    assert held_out.tolist() == [6, 10, 8, 1] and sorted([*train, *held_out]) == list(range(12))


@given(st.lists(st.integers(1, 7), min_size=1, max_size=30), st.floats(0, 1))
def test_images_are_held_out_with_all_their_captions(captions: list[int], share: float) -> None:
    image_of = np.random.default_rng(0).permutation(np.repeat(np.arange(len(captions)), captions)).astype(np.int32)
    train, held_out = split(len(image_of), share, image_of)
    assert len(train) == num_train(len(image_of), share) and (np.diff(train) > 0).all()
    assert not set(image_of[train]) & set(image_of[held_out])
    assert len(set(held_out.tolist())) == len(held_out)
    assert len(image_of) - len(train) - len(held_out) < max(captions)  # of the image at the border
    for image in set(image_of[held_out].tolist()):
        assert (image_of[held_out] == image).sum() == captions[image]
    firsts = image_of[held_out][: len(set(image_of[held_out].tolist()))]
    assert len(set(firsts.tolist())) == len(firsts)  # one caption of each image first


def test_an_image_is_as_likely_held_out_whatever_its_captions() -> None:
    """200 images with one caption, 200 with nine: about as many of both among those held out."""
    image_of = np.repeat(np.arange(400), [1] * 200 + [9] * 200).astype(np.int32)
    _, held_out = split(len(image_of), 0.5, image_of)
    images = np.unique(image_of[held_out])
    assert abs((images < 200).mean() - 0.5) < 0.1


def disorder(ids: np.ndarray, batch: int, block: int) -> tuple[float, float, float]:
    """Pairs of one block in a batch (mean), |correlation| of id and place, mean distance of neighbours over n/3."""
    n = len(ids)
    batches = ids[: n // batch * batch].reshape(-1, batch) // block
    pairs = [sum(c * (c - 1) / 2 for c in np.unique(b, return_counts=True)[1]) for b in batches]
    places = np.arange(n)
    distance = np.abs(np.diff(ids)).mean() / (n / 3)
    return float(np.mean(pairs)), abs(float(np.corrcoef(ids, places)[0, 1])), float(distance)


@pytest.mark.parametrize("block", [16, 64])
def test_blocks_are_nearly_as_well_mixed_as_samples(block: int) -> None:
    """In a batch of 256, drawn from a piece of 256 blocks, about 1 in 256 pairs is of one block."""
    n, batch = 100_000, 256
    ids = Order(n, 0, 0, block).ids(0, n)
    pairs, correlation, distance = disorder(ids, batch, block)
    assert pairs < 1.15 * batch * (batch - 1) / 2 / MIXED  # read without mixing: batch / block x block^2 / 2 or more
    assert correlation < 0.1
    assert distance == pytest.approx(1, abs=0.05)  # two neighbours are as far apart as two random samples
    again = Order(n, 0, 1, block).ids(0, n)
    assert np.mean(ids == again) < 0.001


def test_reading_stays_in_a_few_runs() -> None:
    n, block = 64 * 1_600, 64
    ids = Order(n, 0, 0, block).ids(0, n)
    pieces = [ids[i : i + MIXED * block] for i in range(0, n, MIXED * block)]
    assert max(len(np.unique(piece // block)) for piece in pieces) <= MIXED
