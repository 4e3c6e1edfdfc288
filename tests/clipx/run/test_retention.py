"""Kept checkpoints: the last ones, every Nth step and the best; they are ordered by step, not by file time."""

import os
from pathlib import Path

import pytest

from clipx.errors import UserError
from clipx.run.checkpoint import checkpoints, resolve, step_of
from clipx.run.saving import RetentionPolicy
from tests.helpers.folder import settings
from tests.helpers.runs import prepared, trained


def test_the_last_every_nth_and_the_best_are_kept() -> None:
    config = settings(Path())
    config.train.save_every, config.train.keep, config.train.keep_every = 10, 2, 40
    config.train.keep_best, config.log.geometry_every = "min:loss", 5
    policy = RetentionPolicy(config)
    assert [step for step in range(1, 45) if policy.due(step)] == [10, 20, 30, 40]
    losses = {15: 2.0, 35: 1.5, 45: float("nan"), 95: 1.5}
    found = {step: {"loss": losses[step]} if step in losses else {} for step in (*range(10, 100, 10), *losses)}
    assert policy.retained(found) == {35, 40, 80, 90, 95}  # 35: the first of equal values
    config.train.keep_best = "max:loss"
    assert RetentionPolicy(config).retained(found) == {15, 40, 80, 90, 95}
    config.train.keep, config.train.keep_best, config.train.keep_every = 1, None, None
    assert RetentionPolicy(config).retained(found) == {95}


@pytest.mark.parametrize(
    ("value", "every", "message"),
    [
        ("min:los", 5, "keep_best=min:los must be min:METRIC or max:METRIC; metrics: alignment, gap, loss"),
        ("loss", 5, "keep_best=loss must be min:METRIC"),
        ("min:loss", 0, "keep_best=min:loss must be measured: set log.geometry_every"),
    ],
)
def test_an_unknown_or_unmeasured_metric_is_refused(value: str, every: int, message: str) -> None:
    config = settings(Path())
    config.train.keep_best, config.log.geometry_every = value, every
    with pytest.raises(UserError, match=message):
        RetentionPolicy(config)


def test_the_best_checkpoint_is_saved_and_kept_if_no_other_rule_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = prepared(tmp_path, samples=48, epochs=2, save_every=5)
    config.train.keep, config.train.keep_best = 1, "min:loss"
    config.log.geometry_every, config.data.held_out = 3, 0.3
    losses = {0: 9.0, 3: 2.0, 6: 1.0, 9: 3.0}  # during the eight steps, 3 and 6 are measured
    monkeypatch.setattr(
        "clipx.train.geometry_probe.build_probe",
        lambda *_: lambda step, progress: {} if step % 3 else {"loss": losses[step]},
    )
    run = trained(config)
    assert [step_of(path) for path in checkpoints(run)] == [6, 8]
    assert resolve(run / "checkpoints" / "best") == run / "checkpoints" / "step_00000006"
    assert resolve(run).name == "step_00000008"


def test_checkpoints_are_ordered_by_step_and_not_by_file_time(tmp_path: Path) -> None:
    for age, name in enumerate(("step_99999999", "step_100000000", "step_00000010")):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        os.utime(tmp_path / "checkpoints" / name, (age, age))
    assert [step_of(path) for path in checkpoints(tmp_path)] == [10, 99999999, 100000000]
