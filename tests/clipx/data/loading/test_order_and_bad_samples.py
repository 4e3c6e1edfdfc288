"""Loading for training: the same order for any number of ranks and workers, exact resume, bad samples are skipped."""

import os
import random
import re
from pathlib import Path

import pytest
import torch

from clipx.config.schema import DataConfig, TrainConfig
from clipx.data.loading.collate import sample_generator
from clipx.data.loading.faults import BadSampleCounter, BadSampleFile
from clipx.data.loading.loader import Loader
from clipx.data.preprocess.images import BadSample
from clipx.data.sampler import Sampler
from clipx.data.sources.base import ShardPairs
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.types import Batch
from tests.helpers.folder import add_bad_samples, write_shards
from tests.helpers.loading import inputs, load, tokenize

BATCH = 8
TRAIN = TrainConfig(epochs=1, batch_size=BATCH)
BAD = {  # sample of `add_bad_samples` that is found bad only when it is read -> reason
    "truncated": "corrupt image",
    "empty_text": "empty caption",
    "blank_text": "empty caption",
    "zeros": "corrupt image",
    "empty": "corrupt image",
    "extension": "corrupt image",
    "bomb": "image too large",
    "latin": "not UTF-8",
}


def loaded(config: DataConfig, epochs: int, rank: int = 0, world_size: int = 1, start: int = 0) -> list[Batch]:
    train = TrainConfig(epochs=epochs, batch_size=BATCH)
    return [batch for batch, _ in load(config, train, 3, rank, world_size, start)]


def settings(root: Path, workers: int = 0, block: int = 0) -> DataConfig:
    return DataConfig(
        name="t", source="shards", root=str(root), captions="random", flip=True, workers=workers, block=block
    )


def content(batches: list[Batch]) -> list[tuple[list[int], bytes, bytes]]:
    return [(b.sample_id.tolist(), b.text.numpy().tobytes(), b.image.numpy().tobytes()) for b in batches]


def joined(ranks: list[list[Batch]]) -> list[Batch]:
    """Join the batches of two ranks to global batches."""
    return [
        Batch(*(torch.cat([getattr(a, k), getattr(b, k)]) for k in ("sample_id", "image", "text", "label")))
        for a, b in zip(*ranks, strict=True)
    ]


@pytest.mark.parametrize("block", [0, 4])
def test_three_epochs_are_the_same_for_any_number_of_ranks_and_workers(tmp_path: Path, block: int) -> None:
    write_shards(tmp_path / "train", samples=50)
    alone = loaded(settings(tmp_path, 0, block=block), epochs=3)
    assert len(alone) == 18
    for epoch in range(3):
        ids = torch.cat([b.sample_id for b in alone[epoch * 6 : epoch * 6 + 6]]).tolist()
        assert len(set(ids)) == 48
    texts = [
        {int(i): tuple(t.tolist()) for b in alone[k : k + 6] for i, t in zip(b.sample_id, b.text, strict=True)}
        for k in (0, 6)
    ]
    assert {i for i in texts[0].keys() & texts[1] if texts[0][i] != texts[1][i]}, "an epoch draws captions of its own"
    ranks = [loaded(settings(tmp_path, 2 * rank, block=block), 3, rank, world_size=2, start=5) for rank in range(2)]
    assert content(joined(ranks)) == content(alone)[5:]


def test_the_draws_of_a_sample_depend_on_seed_epoch_and_id() -> None:
    keys = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    assert len({sample_generator(*key).random() for key in keys}) == len(keys)


def test_a_run_stopped_at_any_step_resumes_with_the_same_batches(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=50)
    whole = content(loaded(settings(tmp_path), epochs=3))
    draw = random.Random(0)
    for stop, workers in ((0, 0), (5, 1), (6, 0), (17, 1), (18, 0), (draw.randrange(18), 0)):
        assert content(loaded(settings(tmp_path, workers), epochs=3, start=stop)) == whole[stop:], stop


def test_every_kind_of_bad_sample_is_skipped_and_no_good_one(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=89)
    add_bad_samples(tmp_path / "train")
    config = DataConfig(name="t", source="shards", root=str(tmp_path), workers=0, max_bad_rate=0.2)
    source = open_pair_source(config)
    left_out = " ".join(source.problems)
    for key in ("no_text", "unknown", "cut"):
        assert key in left_out
    sampler = Sampler(len(source), TrainConfig(epochs=1, batch_size=1), 0, 0, 1)
    good, bad = set(), []
    for batch in Loader(config, source, sampler, inputs(), tokenize).host_batches(0, pin_memory=False):
        good |= set(batch.sample_id.tolist())
        bad += batch.bad
    assert sorted(line.split(":")[1] for line in bad) == sorted(BAD)
    for line in bad:
        assert re.search(BAD[line.split(":")[1]], line)
    assert len(good) == 90 and {source.where(i) for i in good} >= {"cut.tar:before"}
    assert len(good) + len(bad) == len(source)
    config.max_bad_rate = 0.01  # fewer than the samples that are left out before a step
    with pytest.raises(UserError, match=r"samples are bad, more than data\.max_bad_rate=0\.01: .*no_text"):
        Loader(config, source, sampler, inputs(), tokenize)


def test_the_share_of_bad_samples_is_checked_after_enough_samples_even_if_the_last_are_good() -> None:
    bad = BadSampleCounter(limit=0.1, min_seen=20)
    bad.count(10, ["a: torn", "b: torn", "c: torn"])
    with pytest.raises(UserError, match="3 of 20 samples are bad"):
        bad.count(10, [])


def test_a_bad_sample_is_written_and_logged_once(tmp_path: Path) -> None:
    file = BadSampleFile(tmp_path)
    names = [f"{i}: torn" for i in range(30)]
    assert file.add([]) == [] and not file.path.exists()
    assert file.add([*names[:3], names[0]]) == ["left out: 0: torn", "left out: 1: torn", "left out: 2: torn"]
    resumed, odd = BadSampleFile(tmp_path), ["two\nlines", os.fsdecode(b"caf\xe9.jpg")]  # a name that is not UTF-8
    messages = resumed.add([*names, *odd])
    assert messages[:17] == [f"left out: {name}" for name in names[3:20]]
    assert messages[17:] == [f"left out: 12 more samples, 32 in total; all are in {tmp_path / 'bad_samples.txt'}"]
    assert resumed.add([*names, *odd]) == [] == BadSampleFile(tmp_path).add([*names, *odd])
    assert file.path.read_text().splitlines() == [*names, "two lines", r"caf\udce9.jpg"]


class TornShards(ShardPairs):
    """Shards in which the samples `bad` are unreadable."""

    def __init__(self, folder: Path, bad: set[int]) -> None:
        super().__init__(folder, "random", 0)
        self.bad = bad

    def pair(self, sample_id: int, generator: random.Random) -> tuple[bytes, str]:
        if sample_id in self.bad:
            raise BadSample("torn")
        return super().pair(sample_id, generator)


def load_torn(root: Path, bad: set[int], rank: int, start: int = 0) -> list[Batch]:
    """Load an epoch as one of two ranks: 6 steps with 4 samples each."""
    config = settings(root)
    config.max_bad_rate = 1.0
    found = load(config, TRAIN, 3, rank, 2, start, source=TornShards(root / "train", bad))
    return [batch for batch, _ in found]


def sampler_of(rank: int) -> Sampler:
    return Sampler(50, TRAIN, seed=3, rank=rank, world_size=2)


def test_a_batch_without_a_good_sample_is_replaced_by_samples_of_the_next_steps(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=50)
    steps = [[sample_id for _, sample_id in step] for step in sampler_of(0).batches(0)]
    bad = {*steps[1], *steps[2][:2], *steps[5]}
    found = load_torn(tmp_path, bad, rank=0)
    expected = [steps[0], [*steps[2][2:], *steps[3][:2]], steps[2][2:], steps[3], steps[4], steps[0]]
    assert [batch.sample_id.tolist() for batch in found] == expected
    assert content(load_torn(tmp_path, bad, rank=0, start=1)) == content(found)[1:]  # also after a resume
    others = load_torn(tmp_path, bad, rank=1)
    for batch, other in zip(found, others, strict=True):  # no sample twice in a global batch
        assert not set(batch.sample_id.tolist()) & set(other.sample_id.tolist())


def test_the_run_ends_if_no_replacement_is_good(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=50)
    of_rank_0 = {sample_id for step in sampler_of(0).batches(0) for _, sample_id in step}
    with pytest.raises(
        UserError, match=r"all samples of a batch are bad, and so are all samples tried as replacements: .*torn"
    ):
        load_torn(tmp_path, of_rank_0, rank=0)
    good = min(of_rank_0)
    assert {i for batch in load_torn(tmp_path, of_rank_0 - {good}, rank=0) for i in batch.sample_id.tolist()} == {good}
