"""A signal or the time limit ends a run after the current step, with a checkpoint, on all ranks at once."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from clipx import distributed, train
from clipx.config.schema import RunConfig
from clipx.run.checkpoint import checkpoints
from clipx.run.folder import RunFolder
from clipx.train import Outcome
from clipx.training.step import train_step
from clipx.training.stop_signals import StopMonitor
from tests.helpers.gloo import Gloo
from tests.helpers.runs import prepared, trained, weights


def small_config(folder: Path, epochs: int = 2) -> RunConfig:
    config = prepared(folder, samples=32, epochs=epochs)
    config.model.image.name = "small:conv"
    return config


def send_signal_at(monkeypatch: pytest.MonkeyPatch, step: int, rank: int, number: int) -> None:
    """Send a signal to this process during a step, on one rank."""
    real_step = train_step

    def signalled(components: Any, batch: Any, progress: Any) -> Any:
        if progress.step == step and distributed.rank() == rank:
            os.kill(os.getpid(), number)
        return real_step(components, batch, progress)

    monkeypatch.setattr(train, "train_step", signalled)


def test_a_signal_saves_and_the_resumed_run_ends_in_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config(tmp_path)
    run, number = RunFolder.create(config).path, signal.SIGTERM
    with monkeypatch.context() as patch:
        send_signal_at(patch, 4, 0, number)
        assert train.fit(config, run) is Outcome.STOPPED
    assert [p.name for p in checkpoints(run)] == ["step_00000005"]
    assert f"{number.name}: saved at step 5 of 8; run the same command to resume" in capsys.readouterr().err
    assert train.fit(config, run) is Outcome.FINISHED
    config.name = "whole"
    torch.testing.assert_close(weights(run), weights(trained(config)), rtol=0, atol=0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_each_signal_is_a_reason_to_stop(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopMonitor(None, time.monotonic()) as stop:
        assert stop.reason(1) == ""
        os.kill(os.getpid(), number)
        assert stop.reason(2) == number.name
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("between", [[], [signal.SIGTERM]])
def test_a_second_ctrl_c_ends_at_once(
    between: list[signal.Signals], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(tmp_path)

    def interrupted(*arguments: Any) -> None:
        for number in [signal.SIGINT, *between, signal.SIGINT]:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(train, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(config)
    assert not checkpoints(RunFolder.of(config).path)


def test_a_signal_that_the_shell_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as after `&` in a script
    try:
        with StopMonitor(None, time.monotonic()) as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.reason(1) == ""
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_time_limit_counts_from_the_given_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small_config(tmp_path)
    config.train.max_minutes = 60.0
    assert train.fit(config, RunFolder.create(config).path, started=time.monotonic() - 3600) is Outcome.STOPPED
    assert "train.max_minutes=60: saved at step 1 of 8" in capsys.readouterr().err


def fit_with_a_signal_to_rank_1(config: RunConfig) -> tuple[Outcome, list[str]]:
    with pytest.MonkeyPatch.context() as patch:
        send_signal_at(patch, 2, 1, signal.SIGTERM)
        outcome = train.fit(config, RunFolder.of(config).path)
    return outcome, [p.name for p in checkpoints(RunFolder.of(config).path)]


def test_a_signal_to_one_rank_stops_all_at_the_same_step(tmp_path: Path, gloo: Gloo) -> None:
    config = small_config(tmp_path, epochs=25)  # 100 steps: fast ones exchange signals only every tenth time
    RunFolder.create(config)
    first, second = gloo.run(2, fit_with_a_signal_to_rank_1, config)
    assert first == second and first[0] is Outcome.STOPPED and len(first[1]) == 1


def test_ranks_agree_about_ten_times_a_second_also_after_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    now, at, asked = [0.0], [0], list[int]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    stop = StopMonitor(None, 0.0)

    def agree(*values: float) -> list[float]:
        asked.append(at[0])
        return [*values]

    monkeypatch.setattr(distributed, "max_over_ranks", agree)

    def steps(first: int, last: int, seconds: float) -> list[int]:
        """Return the steps after which the ranks exchange their signals."""
        asked.clear()
        for step in range(first, last):
            now[0], at[0] = now[0] + seconds, step
            assert stop.reason(step) == ""
        return list(asked)

    now[0] = 60.0  # the start of a resumed run took a minute
    assert steps(100_001, 100_041, 0.01) == [100_001, 100_002, 100_012, 100_022, 100_032]
    assert steps(100_041, 100_050, 1.0)[1:] == [*range(100_043, 100_050)], "slower steps: each of them"
