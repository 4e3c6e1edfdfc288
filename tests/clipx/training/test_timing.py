"""Seconds per phase, images per second and waiting times, on a fake clock."""

from collections.abc import Iterator

import pytest
import torch

from clipx.training.timing import StepTimer, ThroughputMeter


def test_the_start_of_the_loader_does_not_count_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def batches() -> Iterator[int]:
        now[0] += 5  # start of the workers
        for i in range(4):
            now[0] += 0.1
            yield i

    timer = StepTimer(torch.device("cpu"))
    meter, rows = ThroughputMeter(timer), []
    for i in meter.timed(batches()):
        timer.start()
        now[0] += 0.2
        timer.end_phase("forward")
        now[0] += 0.7  # rest of the step
        timer.end_phase("backward")
        meter.images += 9
        if i % 2:
            rows.append(meter.read())
    # first line: two steps and one wait, for the second batch; second line: two steps and two waits
    assert rows == [
        {"images_per_s": pytest.approx(18 / 1.9, abs=0.1), "data_wait": pytest.approx(0.1 / 1.9, abs=1e-4),
         "step_s": {"data": 0.05, "forward": pytest.approx(0.2), "backward": pytest.approx(0.7)}, "first_batch_s": 5.1},
        {"images_per_s": 9.0, "data_wait": 0.1,
         "step_s": {"data": 0.1, "forward": pytest.approx(0.2), "backward": pytest.approx(0.7)}},
    ]  # fmt: skip


@pytest.mark.parametrize(("queued", "rate"), [(0.0, 18.0), (1.5, 4.5)])  # seconds that a GPU needs for its steps
def test_paused_time_does_not_count_but_queued_steps_do(
    queued: float, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, timer = [100.0], StepTimer(torch.device("cpu"))
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("torch.cuda.synchronize", lambda: now.append(now.pop() + queued))
    meter = ThroughputMeter(timer)
    timer.cuda = queued > 0
    for _ in meter.timed(iter(range(3))):
        now[0] += 0.5
        meter.images += 9
        with meter.paused():
            now[0] += 60
    timer.cuda = False
    assert meter.read()["images_per_s"] == rate


def test_rates_of_one_gpu_are_shares_of_all_and_of_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    timer = StepTimer(torch.device("cpu"))
    meter, on_cpu = ThroughputMeter(timer, gpus=4, at_peak=50.0), ThroughputMeter(timer)
    now[0] += 2
    meter.images = 160
    rates = meter.read()
    assert [rates[name] for name in ("images_per_s", "images_per_s_gpu", "mfu")] == [80.0, 20.0, 0.4]
    assert not {"images_per_s_gpu", "mfu"} & on_cpu.read().keys()
