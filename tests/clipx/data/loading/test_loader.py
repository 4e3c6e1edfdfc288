"""The order of samples is a function of seed, epoch and step; damage costs only itself."""

import json
import random
import tarfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clipx.config.schema import DataConfig, TrainConfig
from clipx.data.loading.bad_samples import BadSamples
from clipx.data.loading.collate import Loaded
from clipx.data.loading.loader import Loader
from clipx.data.preprocess.images import BadSample
from clipx.data.sampler import Sampler
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.types import Batch, Inputs
from tests.clipx.data.preprocess.test_images import png_header
from tests.helpers.folder import add, jpeg, write_shards

INPUTS = Inputs(32, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "bicubic", "shortest", "RN50", 8)


def tokenize(texts: list[str]) -> torch.Tensor:
    """The first 8 bytes of each text."""
    return torch.tensor([list(t.encode()[:8].ljust(8)) for t in texts])


def sampler(samples: int, batch: int, epochs: int = 3, seed: int = 0, rank: int = 0, world: int = 1) -> Sampler:
    return Sampler(samples, TrainConfig(epochs=epochs, batch_size=batch), seed, rank, world)


def batches(root: Path, workers: int, start: int = 0) -> list[tuple[Batch, list[str]]]:
    config = DataConfig(name="t", source="shards", root=str(root), captions="random", flip=True, workers=workers)
    pairs = open_pair_source(config)
    loader = Loader(config, pairs, sampler(len(pairs), 8), INPUTS, tokenize)
    return list(loader.batches(start, torch.device("cpu")))


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 3), st.data())
def test_an_epoch_is_a_permutation_and_any_stop_resumes_in_it(n: int, b: int, seed: int, data: st.DataObject) -> None:
    batch = min(n, b)
    every = sampler(n, batch, seed=seed)
    steps = list(every.batches(0))
    assert len(steps) == every.total_steps == 3 * (n // batch)
    for epoch in range(3):
        ids = [i for step in steps[epoch * (n // batch) : (epoch + 1) * (n // batch)] for e, i in step if e == epoch]
        assert len(set(ids)) == len(ids) == n // batch * batch
        assert set(ids) <= set(range(n))
    stop = data.draw(st.integers(0, every.total_steps))
    assert list(every.batches(stop)) == steps[stop:]


def test_ranks_share_each_global_batch() -> None:
    whole = list(sampler(40, 8).batches(0))
    parts = [list(sampler(40, 8, rank=r, world=4).batches(0)) for r in range(4)]
    assert [[index for part in parts for index in part[i]] for i in range(len(whole))] == whole


def test_epochs_and_seeds_differ() -> None:
    first = list(sampler(64, 64).batches(0))
    assert [i for _, i in first[0]] != [i for _, i in first[1]]
    assert first != list(sampler(64, 64, seed=1).batches(0))


def test_workers_and_resume_give_the_same_pixels_and_tokens(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=40)
    alone = batches(tmp_path, workers=0)
    for other, start in ((batches(tmp_path, workers=2), 0), (batches(tmp_path, workers=1, start=7), 7)):
        assert len(other) == len(alone) - start
        for (a, _), (b, _) in zip(alone[start:], other, strict=True):
            assert torch.equal(a.sample_id, b.sample_id)
            assert torch.equal(a.image, b.image)
            assert torch.equal(a.text, b.text)


def test_captions_and_crops_change_between_epochs(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=40)
    texts: dict[int, set[bytes]] = {}
    for batch, _ in batches(tmp_path, workers=0):
        for i, text in zip(batch.sample_id.tolist(), batch.text, strict=True):
            texts.setdefault(i, set()).add(bytes(text.tolist()))
    assert sum(len(t) > 1 for t in texts.values()) > 20


def test_the_state_of_the_global_generator_is_left_alone(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=16)
    before = torch.get_rng_state()
    batches(tmp_path, workers=0)
    batches(tmp_path, workers=1)
    assert torch.equal(torch.get_rng_state(), before)


def damaged(root: Path) -> None:
    """100 pairs with 4 that only decoding finds bad, and an image without a caption."""
    write_shards(root / "train", samples=96)
    with tarfile.open(root / "train" / "bad.tar", "w") as tar:
        add(tar, "cut.jpg", jpeg("red")[:300])
        add(tar, "cut.txt", b"a caption")
        add(tar, "text.jpg", jpeg("red"))
        add(tar, "text.txt", b"\xff\xfe\xfa")
        add(tar, "blank.jpg", jpeg("red"))
        add(tar, "blank.txt", b"  \n")
        add(tar, "bomb.png", png_header(20_000, 20_000))
        add(tar, "bomb.txt", b"a large image")
        add(tar, "alone.jpg", jpeg("red"))


def first_captions(root: Path, bad: float) -> list[tuple[Batch, list[str]]]:
    config = DataConfig(name="t", source="shards", root=str(root), workers=0, max_bad_rate=bad)
    pairs = open_pair_source(config)
    loader = Loader(config, pairs, sampler(len(pairs), 25, epochs=1), INPUTS, tokenize)
    return list(loader.batches(0, torch.device("cpu")))


def test_bad_samples_cost_exactly_themselves(tmp_path: Path) -> None:
    damaged(tmp_path)
    loaded = first_captions(tmp_path, bad=0.1)
    assert sorted(i for batch, _ in loaded for i in batch.sample_id.tolist()) == list(range(96))
    reasons = sorted(line for _, damage in loaded for line in damage)
    assert [r.split(":")[1] for r in reasons] == ["blank", "bomb", "cut", "text"]
    assert "empty caption" in reasons[0]
    assert "20000 x 20000 pixels" in reasons[1] or "exceeds limit" in reasons[1]
    assert "damaged image" in reasons[2]
    assert "not UTF-8" in reasons[3]


def test_too_many_bad_samples_stop_the_run_with_their_names(tmp_path: Path) -> None:
    damaged(tmp_path)
    with pytest.raises(UserError, match=r"4 of 100 samples .* data.max_bad_rate=0.02: bad.tar:"):
        first_captions(tmp_path, bad=0.02)


def test_the_rate_counts_what_was_decoded_not_the_whole_data_set() -> None:
    bad = BadSamples(limit=0.05, enough=100)
    bad.count(99, ["a"] * 20)  # too few to judge
    with pytest.raises(UserError, match=r"21 of 119 samples"):
        bad.count(20, ["b"])


@pytest.mark.parametrize("captions", ["a text", [], [1, 2], {"a": 1}, None])
def test_captions_that_are_no_list_of_texts_are_bad_samples(tmp_path: Path, captions: object) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    with tarfile.open(folder / "0.tar", "w") as tar:
        add(tar, "a.jpg", jpeg("red"))
        add(tar, "a.json", json.dumps({"captions": captions}).encode())
    pairs = open_pairs(DataConfig(name="t", source="shards", root=str(tmp_path), captions="random"))
    with pytest.raises(BadSample, match="not a list of texts"):
        pairs.pair(0, random.Random(0))


@pytest.mark.parametrize(
    ("batch", "world", "message"),
    [(9, 2, "divisible by the number of processes"), (41, 1, "larger than the 40 samples")],
)
def test_impossible_batches_are_refused(batch: int, world: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sampler(40, batch, world=world)


def test_a_length_in_samples_ends_in_the_middle_of_an_epoch() -> None:
    by_samples = Sampler(40, TrainConfig(samples=100, batch_size=8), 0, 0, 1)
    by_epochs = sampler(40, 8, epochs=3)
    assert list(by_samples.batches(0)) == list(by_epochs.batches(0))[:12]
    assert (by_samples.total_steps, by_samples.total_epochs) == (12, 3)
    assert [by_samples.progress(s).epoch for s in (0, 4, 5, 11)] == [0, 0, 1, 2]


def test_a_batch_on_its_way_to_a_gpu_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As DataLoader does it, which takes a class that it does not know as it is."""
    from torch.utils.data._utils.pin_memory import pin_memory

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)  # there may be no GPU to pin for
    zeros = torch.zeros(2, dtype=torch.int64)
    pinned = pin_memory(Loaded(zeros, zeros, zeros, zeros, damage=["a"]))  # type: ignore[no-untyped-call]
    assert [t.tolist() for t in (pinned.sample_id, pinned.pixels, pinned.text, pinned.label)] == [[1, 1]] * 4
    assert pinned.damage == ["a"]
