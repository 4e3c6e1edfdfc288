"""A loader that hangs ends the run, with the name of what it was reading."""

import random
import time
from pathlib import Path

import pytest

from clipx import runs, train
from clipx.data.pairs import ShardPairs
from clipx.data.stall import WIDTH, Reading
from clipx.errors import Fault
from tests.clipx.folder import settings, write_shards


@pytest.mark.parametrize("workers", [0, 1])
def test_the_sample_that_is_being_read_is_named(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ShardPairs.pair

    def hanging(self: ShardPairs, sample_id: int, generator: random.Random) -> tuple[bytes, str]:
        if sample_id == 20:
            time.sleep(60)
        return plain(self, sample_id, generator)

    monkeypatch.setattr(ShardPairs, "pair", hanging)
    write_shards(tmp_path / "train", samples=32)
    config = settings(tmp_path, epochs=1)
    config.data.stall_seconds, config.data.workers = 2.0, workers
    run = runs.claim(config)
    message = r"no batch came for data.stall_seconds=2; the loader is reading process 0: 00001.tar:000020$"
    with pytest.raises(Fault, match=message):
        train.fit(config, run)


def test_names_are_cut_where_they_are_too_long_and_forgotten_when_read() -> None:
    reading = Reading(2)
    reading.note("x" * 1000)
    assert reading.now() == [f"process 0: {'x' * (WIDTH - 1)}"]
    reading.note("")
    assert reading.now() == []
