"""The sample order depends only on seed, epoch and step; bad samples are skipped, and no others."""

import json
import random
import tarfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clipx.config.data_schema import DataConfig
from clipx.config.schema import TrainConfig
from clipx.data.loading.bad_samples import BadSampleCounter
from clipx.data.loading.collate import HostBatch
from clipx.data.loading.loader import Loader
from clipx.data.preprocess.images import BadSample
from clipx.data.sampler import Sampler
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.types import Batch, Inputs
from tests.helpers.folder import add, jpeg, png_header, write_shards

INPUTS = Inputs(32, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "bicubic", "shortest", "RN50", 8)


def tokenize(texts: list[str]) -> torch.Tensor:
    """Return the first 8 bytes of each text."""
    return torch.tensor([list(t.encode()[:8].ljust(8)) for t in texts])


def sampler(samples: int, batch: int, epochs: int = 3, seed: int = 0, world_size: int = 1) -> Sampler:
    return Sampler(samples, TrainConfig(epochs=epochs, batch_size=batch), seed, 0, world_size)


def batches(root: Path, workers: int) -> list[tuple[Batch, list[str]]]:
    """Return the batches of three epochs, with the errors of their bad samples."""
    config = DataConfig(name="t", source="shards", root=str(root), captions="random", flip=True, workers=workers)
    source = open_pair_source(config)
    loader = Loader(config, source, sampler(len(source), 8), INPUTS, tokenize)
    return list(loader.batches(0, torch.device("cpu")))


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 3), st.data())
def test_an_epoch_is_a_permutation_and_a_run_resumes_at_any_step(
    n: int, b: int, seed: int, data: st.DataObject
) -> None:
    batch = min(n, b)
    whole = sampler(n, batch, seed=seed)
    steps = list(whole.batches(0))
    assert len(steps) == whole.total_steps == 3 * (n // batch)
    for epoch in range(3):
        ids = [i for step in steps[epoch * (n // batch) : (epoch + 1) * (n // batch)] for e, i in step if e == epoch]
        assert len(set(ids)) == len(ids) == n // batch * batch
        assert set(ids) <= set(range(n))
    stop = data.draw(st.integers(0, whole.total_steps))
    assert list(whole.batches(stop)) == steps[stop:]


def test_the_order_differs_between_epochs_and_seeds() -> None:
    first = list(sampler(64, 64).batches(0))
    assert [i for _, i in first[0]] != [i for _, i in first[1]]
    assert first != list(sampler(64, 64, seed=1).batches(0))


def test_captions_change_between_epochs(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=40)
    texts: dict[int, set[bytes]] = {}
    for batch, _ in batches(tmp_path, workers=0):
        for i, text in zip(batch.sample_id.tolist(), batch.text, strict=True):
            texts.setdefault(i, set()).add(bytes(text.tolist()))
    assert sum(len(t) > 1 for t in texts.values()) > 20


def test_loading_leaves_the_global_random_state_unchanged(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=16)
    before = torch.get_rng_state()
    batches(tmp_path, workers=0)
    batches(tmp_path, workers=1)
    assert torch.equal(torch.get_rng_state(), before)


def write_with_bad_samples(root: Path) -> None:
    """Write 96 good pairs, 4 pairs that are found bad only when read or decoded, and an image without a caption."""
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


def load_all(root: Path, max_bad_rate: float) -> list[tuple[Batch, list[str]]]:
    config = DataConfig(name="t", source="shards", root=str(root), workers=0, max_bad_rate=max_bad_rate)
    source = open_pair_source(config)
    loader = Loader(config, source, sampler(len(source), 25, epochs=1), INPUTS, tokenize)
    return list(loader.batches(0, torch.device("cpu")))


def test_exactly_the_bad_samples_are_skipped(tmp_path: Path) -> None:
    write_with_bad_samples(tmp_path)
    loaded = load_all(tmp_path, max_bad_rate=0.1)
    assert sorted(i for batch, _ in loaded for i in batch.sample_id.tolist()) == list(range(96))
    reasons = sorted(line for _, bad in loaded for line in bad)
    assert [r.split(":")[1] for r in reasons] == ["blank", "bomb", "cut", "text"]
    assert "empty caption" in reasons[0]
    assert "20000 x 20000 pixels" in reasons[1] or "exceeds limit" in reasons[1]
    assert "corrupt image" in reasons[2]
    assert "not UTF-8" in reasons[3]


def test_too_many_bad_samples_stop_the_run_with_their_names(tmp_path: Path) -> None:
    write_with_bad_samples(tmp_path)
    with pytest.raises(UserError, match=r"4 of 100 samples .* data.max_bad_rate=0.02: bad.tar:"):
        load_all(tmp_path, max_bad_rate=0.02)


def test_the_share_of_bad_samples_is_over_the_samples_seen_not_over_the_data_set() -> None:
    bad = BadSampleCounter(limit=0.05, min_seen=100)
    bad.count(99, ["a"] * 20)  # too few samples to check the share
    with pytest.raises(UserError, match=r"21 of 119 samples"):
        bad.count(20, ["b"])


@pytest.mark.parametrize("captions", ["a text", [], [1, 2], {"a": 1}, None])
def test_captions_that_are_not_a_list_of_texts_are_a_bad_sample(tmp_path: Path, captions: object) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    with tarfile.open(folder / "0.tar", "w") as tar:
        add(tar, "a.jpg", jpeg("red"))
        add(tar, "a.json", json.dumps({"captions": captions}).encode())
    source = open_pair_source(DataConfig(name="t", source="shards", root=str(tmp_path), captions="random"))
    with pytest.raises(BadSample, match="not a list of texts"):
        source.pair(0, random.Random(0))


@pytest.mark.parametrize(
    ("batch", "world_size", "message"),
    [(9, 2, "divisible by the number of processes"), (41, 1, "larger than the 40 samples")],
)
def test_impossible_batch_sizes_are_refused(batch: int, world_size: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sampler(40, batch, world_size=world_size)


def test_a_run_with_train_samples_may_end_within_an_epoch() -> None:
    by_samples = Sampler(40, TrainConfig(samples=100, batch_size=8), 0, 0, 1)
    by_epochs = sampler(40, 8, epochs=3)
    assert list(by_samples.batches(0)) == list(by_epochs.batches(0))[:12]
    assert (by_samples.total_steps, by_samples.total_epochs) == (12, 3)
    assert [by_samples.progress(s).epoch for s in (0, 4, 5, 11)] == [0, 0, 1, 2]


def test_a_batch_for_a_gpu_is_in_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """DataLoader pins the tensors of a named tuple, and leaves other classes unpinned."""
    from torch.utils.data._utils.pin_memory import pin_memory

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *device: tensor + 1)  # pinning needs a GPU
    zeros = torch.zeros(2, dtype=torch.int64)
    pinned = pin_memory(HostBatch(zeros, zeros, zeros, zeros, bad=["a"]))  # type: ignore[no-untyped-call]
    assert [t.tolist() for t in (pinned.sample_id, pinned.pixels, pinned.text, pinned.label)] == [[1, 1]] * 4
    assert pinned.bad == ["a"]
