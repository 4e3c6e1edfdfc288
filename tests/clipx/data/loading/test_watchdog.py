"""If a loader hangs, the run ends with an error that names the sample being read."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clipx import train
from clipx.config.schema import DataConfig, TrainConfig
from clipx.data.loading.faults import NAME_BYTES, WorkerActivity, with_timeout
from clipx.data.sources.base import ShardPairs
from clipx.errors import Fault
from clipx.run.folder import RunFolder
from tests.helpers.loading import load
from tests.helpers.runs import prepared


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_error_names_the_sample_being_read(workers: int, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = ShardPairs.pair

    def hanging(self: ShardPairs, sample_id: int, generator: random.Random) -> tuple[bytes, str]:
        if sample_id == 10:
            time.sleep(60)
        return pair(self, sample_id, generator)

    monkeypatch.setattr(ShardPairs, "pair", hanging)
    config = DataConfig(name="t", source="shards", root=str(shards), workers=workers, stall_seconds=1.0)
    message = r"no batch came for data.stall_seconds=1; worker 0 is reading 00000.tar:000010$"
    with pytest.raises(Fault, match=message):
        load(config, TrainConfig(epochs=1, batch_size=4))


def test_a_killed_loader_process_ends_the_run_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = "clipx.data.loading.loader.start_worker"
    monkeypatch.setattr(killed, lambda worker: os.kill(os.getpid(), signal.SIGKILL))
    config = prepared(tmp_path, samples=32, epochs=1)
    config.data.workers, config.model.image.name = 1, "small:conv"
    with pytest.raises(Fault, match=r"^DataLoader worker .*; if memory was short, use fewer data.workers$"):
        train.fit(config, RunFolder.create(config).path)


@pytest.mark.parametrize(
    ("source", "reading"),
    [
        ("shards", r"no worker is reading a sample \(not started, or busy after the read\)"),  # hangs while decoding
        ("webdataset", "worker 0 is reading its first sample"),
    ],
)
def test_a_timeout_is_not_reported_as_a_bad_sample(
    source: str, reading: str, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without loader processes, the timeout is raised within code that reports any Exception as a bad sample."""
    config = DataConfig(name="t", source=source, root=str(shards), workers=0, stall_seconds=1.0)
    config.max_bad_rate, config.num_samples, config.urls = 1.0, 8, [str(shards / "train" / "00000.tar")]
    monkeypatch.setattr("webdataset.tariterators.tarfile_samples", lambda urls: time.sleep(60))
    monkeypatch.setattr("PIL.Image.open", lambda *of, **formats: time.sleep(60))
    with pytest.raises(Fault, match=f"no batch came for data.stall_seconds=1; {reading}$"):
        load(config, TrainConfig(epochs=1, batch_size=4))


def test_long_locations_are_truncated_and_locations_of_finished_samples_removed() -> None:
    activity = WorkerActivity(2)
    activity.record("x" * 1000)
    assert activity.current() == [f"worker 0 is reading {'x' * (NAME_BYTES - 1)}"]
    activity.record("caf\udce9.jpg")  # a name in latin-1, as tarfile reads it
    assert activity.current() == [r"worker 0 is reading caf\udce9.jpg"]
    activity.record("")
    assert activity.current() == []


def test_a_run_continues_after_one_alarm_as_after_a_suspension_and_ends_after_two() -> None:
    def batches() -> Iterator[int]:
        os.kill(os.getpid(), signal.SIGALRM)
        yield 1
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGALRM)
        yield 2

    found = with_timeout(batches(), 600, WorkerActivity(0))
    assert next(found) == 1
    with pytest.raises(Fault, match="no batch came"):
        next(found)
