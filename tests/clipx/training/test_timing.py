"""What the log says of speed, on a clock of the test's."""

from collections.abc import Iterator

import pytest
import torch

from clipx.training.timing import StepTimer, ThroughputMeter


def test_the_loaders_start_is_no_wait_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def batches() -> Iterator[int]:
        now[0] += 5  # workers start
        for i in range(4):
            now[0] += 0.1
            yield i

    laps = StepTimer(torch.device("cpu"))
    measured, rows = ThroughputMeter(laps), []
    for i in measured.wait(batches()):
        laps.start()
        now[0] += 0.2
        laps.end("forward")
        now[0] += 0.7  # the rest of a step
        laps.end("backward")
        measured.images += 9
        if i % 2:
            rows.append(measured.read())
    # two steps and the wait for the second batch; then two steps and two waits
    assert rows == [
        {"images_per_s": pytest.approx(18 / 1.9, abs=0.1), "data_wait": pytest.approx(0.1 / 1.9, abs=1e-4),
         "step_s": {"data": 0.05, "forward": pytest.approx(0.2), "backward": pytest.approx(0.7)}, "first_batch_s": 5.1},
        {"images_per_s": 9.0, "data_wait": 0.1,
         "step_s": {"data": 0.1, "forward": pytest.approx(0.2), "backward": pytest.approx(0.7)}},
    ]  # fmt: skip


def test_what_is_measured_between_steps_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    measured = ThroughputMeter(StepTimer(torch.device("cpu")))
    for _ in measured.wait(iter(range(3))):
        now[0] += 0.5
        measured.images += 9
        with measured.paused():
            now[0] += 60
    assert measured.read()["images_per_s"] == 18.0


def test_no_batches_are_no_batches() -> None:
    assert list(ThroughputMeter(StepTimer(torch.device("cpu"))).wait(iter([]))) == []
