"""Streams are endless, draw URLs by weight and skip bad samples; settings that need sample ids are refused."""

import os
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from clipx.config.schema import DataConfig, TrainConfig
from clipx.data.loading.loader import STREAM_NOTE, source_notes
from clipx.data.sources.opening import open_source
from clipx.data.sources.streams import Stream
from clipx.errors import Fault, UserError
from clipx.types import Batch
from tests.helpers.folder import write_shards
from tests.helpers.loading import load


def config(root: Path, workers: int = 0) -> DataConfig:
    urls = [f"{root}/a/{{00000..00001}}.tar", f"{root}/b/00000.tar"]
    made = DataConfig(name="s", source="webdataset", urls=urls, num_samples=32, workers=workers, shuffle_buffer=8)
    made.captions = "random"
    return made


def write_two_urls(root: Path) -> None:
    write_shards(root / "a", samples=32)
    write_shards(root / "b", samples=16)


def loaded(config: DataConfig, rank: int = 0, world_size: int = 1, start: int = 0) -> list[tuple[Batch, list[str]]]:
    return load(config, TrainConfig(samples=64, batch_size=8), 0, rank, world_size, start)


def test_a_stream_gives_full_batches_and_is_deterministic(tmp_path: Path) -> None:
    write_two_urls(tmp_path)
    batches = loaded(config(tmp_path, workers=2))
    assert [len(batch.text) for batch, _ in batches] == [8] * 8
    assert torch.cat([batch.sample_id for batch, _ in batches]).tolist() == list(range(64))
    assert not torch.equal(batches[0][0].text, batches[1][0].text), "both workers read the same samples"
    again = loaded(config(tmp_path, workers=2))
    assert all(torch.equal(a.image, b.image) for (a, _), (b, _) in zip(batches, again, strict=True))


def test_ranks_and_resumed_runs_draw_different_samples(tmp_path: Path) -> None:
    write_two_urls(tmp_path)
    found = [loaded(config(tmp_path), rank, world_size=2, start=start) for rank, start in ((0, 0), (1, 0), (0, 2))]
    texts = [torch.cat([batch.text for batch, _ in batches]) for batches in found]
    ids = [torch.stack([batch.sample_id for batch, _ in batches]) for batches in found]
    assert torch.cat(ids[:2], dim=1).flatten().tolist() == list(range(64)) and torch.equal(ids[2], ids[0][2:])
    assert len(texts[0]) == 32 and not torch.equal(texts[0], texts[1]) and not torch.equal(texts[0][:24], texts[2])


def test_urls_are_drawn_by_their_weights(tmp_path: Path) -> None:
    write_two_urls(tmp_path)
    made = config(tmp_path)
    made.url_weights = [1, 3]
    drawn = [pair.where for pair in islice(Stream(made).pairs(random.Random(0)), 1200)]
    # `where` has no folder, so a/00000.tar and b/00000.tar count together: expected share 1/4 x 1/2 + 3/4
    assert sum(where.startswith("00000.tar:") for where in drawn) / 1200 == pytest.approx(0.875, abs=0.04)


def test_the_rest_of_a_corrupt_shard_is_skipped_and_a_stream_without_good_samples_raises(tmp_path: Path) -> None:
    write_two_urls(tmp_path)
    size = (tmp_path / "b" / "00000.tar").stat().st_size
    os.truncate(tmp_path / "b" / "00000.tar", size // 2)
    made = config(tmp_path)
    made.max_bad_rate = 0.5
    bad = [line for _, lines in loaded(made) for line in lines]
    assert bad and all("00000.tar: the rest cannot be read" in line for line in bad)
    (tmp_path / "b" / "00000.tar").write_bytes(b"no tar file" * 100)
    made.urls = [f"{tmp_path}/b/00000.tar"]
    with pytest.raises(UserError, match=r"as replacements: 00000.tar: the rest cannot be read"):
        loaded(made)


def test_a_lost_shard_counts_as_many_bad_samples_as_a_shard_holds(tmp_path: Path) -> None:
    """One of three shards cannot be read: a third of the samples is bad, and not one in a few hundred."""
    write_shards(tmp_path / "a", samples=48, per_shard=16)
    (tmp_path / "a" / "00001.tar").write_bytes(b"no tar file" * 100)
    made = config(tmp_path)
    made.urls, made.max_bad_rate = [f"{tmp_path}/a/{{00000..00002}}.tar"], 0.2
    with pytest.raises(UserError, match=r"samples are bad, more than data.max_bad_rate=0.2: 00001.tar: the rest"):
        load(made, TrainConfig(samples=1600, batch_size=8))


def test_missing_shards_are_named_before_the_first_step(tmp_path: Path) -> None:
    write_shards(tmp_path / "a", samples=32)
    made = config(tmp_path)
    made.urls = [f"{tmp_path}/a/{{00000..00009}}.tar"]
    with pytest.raises(UserError, match=r"8 of 10 shards are missing.*max_bad_rate=0.05; the first is .*a/00002.tar"):
        open_source(made)
    made.max_bad_rate = 0.9
    made.urls += [f"{tmp_path}/b.tar"]
    with pytest.raises(UserError, match=r"9 of 11 shards are missing, all of one URL; the first is .*a/00002.tar"):
        open_source(made)
    made.urls.pop()
    stream = Stream(made)
    assert len(stream.problems) == 8 and len(stream.shards[0]) == 2


@pytest.mark.parametrize(
    "url", ["a", "a/*.tar", "a/0000?.tar", "a/{00000..00001}.tar", "a/**.tar", "**/*.tar", "./a/*.tar"]
)
def test_a_folder_and_a_pattern_stand_for_their_shards(tmp_path: Path, url: str) -> None:
    write_shards(tmp_path / "a", samples=32)
    made = config(tmp_path)
    made.urls = [f"{tmp_path}/{url}"]
    assert Stream(made).shards == [[f"{tmp_path}/a/00000.tar", f"{tmp_path}/a/00001.tar"]]


def test_a_batch_without_a_good_sample_is_replaced_by_the_next_batch(tmp_path: Path) -> None:
    """Three of four shards are empty, so many batches of 2 have no good sample."""
    write_shards(tmp_path, samples=4, per_shard=4)
    for number in (1, 2, 3):
        (tmp_path / f"0000{number}.tar").touch()
    made = config(tmp_path)
    made.urls, made.max_bad_rate, made.shuffle_buffer = [f"{tmp_path}/{{00000..00003}}.tar"], 1.0, 1
    batches = load(made, TrainConfig(samples=64, batch_size=2))
    assert len(batches) == 32 and all(len(batch.text) for batch, _ in batches)
    assert any(len(bad) > 2 for _, bad in batches)  # includes the bad samples of dropped batches


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("urls", [], "data.urls is needed"),
        ("urls", ["a.tar", " "], "data.urls has an empty entry"),  # not the current folder
        ("urls", ["nowhere/*.tar"], r"data.urls=nowhere/\*.tar has no shards"),
        ("url_weights", [1.0, float("inf")], "one number above 0 for each of the 2 urls"),
        ("num_samples", None, "data.num_samples is needed"),
        ("held_out", 0.1, "data.held_out=0.1 needs random access, which data.source=webdataset does not have"),
        ("cache", "memory", "data.cache=memory needs random access, .*; allowed: none, or another source"),
        ("features", True, "data.features=true needs random access, .*; allowed: false, or another source"),
        ("captions", "each", "data.captions=each is not known"),
    ],
)
def test_the_error_of_a_wrong_setting_of_a_stream_names_it(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    write_two_urls(tmp_path)
    made = config(tmp_path)
    setattr(made, key, value)
    with pytest.raises(UserError, match=message):
        open_source(made)


def test_source_notes_refuse_per_sample_columns_and_report_inexact_resume(tmp_path: Path) -> None:
    write_two_urls(tmp_path)
    stream = open_source(config(tmp_path))
    with pytest.raises(UserError, match="keeps u, zeta for every sample"):
        source_notes(stream, {"u": 0.0, "zeta": 0.0})
    assert source_notes(stream, {}) == [STREAM_NOTE]


def test_a_stream_ends_the_run_after_five_reads_without_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*given: object) -> Iterator[dict[str, Any]]:
        raise ConnectionError("no network")
        yield

    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr("webdataset.tariterators.tarfile_samples", no_network)
    pairs = Stream(DataConfig(name="h", source="webdataset", urls=["http://x/{0..9}.tar"], num_samples=16))
    with pytest.raises(Fault, match=r"^5 reads in a row gave no sample; the last error: ConnectionError: no network$"):
        list(islice(pairs.pairs(random.Random(0)), 6))
    assert pauses == [1, 2, 4, 8]
