"""Length of a run, errors in a loader process, copies to a GPU; the global random state is kept."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from clipx.config.schema import DataConfig, TrainConfig
from clipx.data.loading.collate import HostBatch
from clipx.data.loading.loader import _Copies
from clipx.data.sampler import Sampler
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.training.timing import StepTimer, ThroughputMeter
from tests.helpers.folder import write_shards
from tests.helpers.loading import load


def test_loading_leaves_the_global_random_state_unchanged(shards: Path) -> None:
    before = torch.get_rng_state()
    for workers in (0, 1):
        config = DataConfig(source="shards", root=str(shards), captions="random", flip=True, workers=workers)
        config.rand_augment = [2, 7]
        load(config, TrainConfig(epochs=1, batch_size=8))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_error_in_a_loader_process_is_one_line(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=32)
    config = DataConfig(name="t", source="shards", root=str(tmp_path), workers=1)
    source = open_pair_source(config)
    (tmp_path / "train" / "00001.tar").unlink()
    with pytest.raises(UserError, match=r"^cannot use .*/train/00001\.tar: No such file or directory$"):
        load(config, TrainConfig(epochs=1, batch_size=8), source=source)


def test_the_host_waits_for_the_gpu_two_steps_behind_and_not_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    now, gpu = [0.0], MagicMock()  # records all calls in their order
    for name in ("Stream", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(gpu, name))
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    wait = gpu.current_stream().record_event().synchronize
    wait.side_effect = lambda: now.append(now.pop() + 1)  # seconds
    meter = ThroughputMeter(StepTimer(torch.device("cpu")))
    copies = _Copies(torch.device("cuda", 0), meter.computing)

    def batches() -> Iterator[int]:
        for step in range(5):
            now[0] += 0.25  # the loader needs this time
            copies.of(gpu.pixels)
            assert wait.call_count == max(0, step - 1)
            copied = ["stream().__enter__", "pixels.to", "stream().__exit__"]
            used = ["current_stream().wait_stream", "pixels.to().record_stream"]
            assert [call[0] for call in gpu.mock_calls[-5:]] == [*copied, *used]
            yield step

    for _ in meter.timed(batches()):
        meter.images += 8
    rates = meter.read()
    assert rates["step_s"] == {"data": 4 * 0.25 / 5} and rates["data_wait"] == 0.25  # 1 of 1 + 3 seconds


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(UserError, match="larger than the 40 samples"):
        Sampler(40, TrainConfig(epochs=3, batch_size=41), 0, 0, 1)


def test_a_run_with_train_samples_may_end_within_an_epoch() -> None:
    by_samples = Sampler(40, TrainConfig(samples=100, batch_size=8), 0, 0, 1)
    by_epochs = Sampler(40, TrainConfig(epochs=3, batch_size=8), 0, 0, 1)
    assert list(by_samples.batches(0)) == list(by_epochs.batches(0))[:12]
    assert (by_samples.total_steps, by_samples.total_epochs) == (12, 3)
    assert [by_samples.progress(s).epoch for s in (0, 4, 5, 11)] == [0, 0, 1, 2]


def test_a_batch_for_a_gpu_is_in_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """DataLoader pins the tensors of a named tuple, but not those of a data class."""
    from torch.utils.data._utils.pin_memory import pin_memory

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *device: tensor + 1)  # pinning needs a GPU
    zeros = torch.zeros(2, dtype=torch.int64)
    pinned = pin_memory(HostBatch(zeros, zeros, zeros, zeros, bad=["a"]))  # type: ignore[no-untyped-call]
    assert [t.tolist() for t in (pinned.sample_id, pinned.pixels, pinned.text, pinned.label)] == [[1, 1]] * 4
    assert pinned.bad == ["a"]
