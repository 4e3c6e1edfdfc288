"""Learning-rate schedules have the known values at known steps."""

import pytest

from clipx.config.schema import ScheduleConfig
from clipx.errors import UserError
from clipx.training.optimizer import build_lr_schedule
from clipx.types import Progress


def lr_at(step: int, config: ScheduleConfig) -> float:
    return build_lr_schedule(config, lr=2.0, steps_per_epoch=110)(
        Progress(step=step, total_steps=110, epoch=0, total_epochs=1)
    )


def test_cosine_after_warmup() -> None:
    config = ScheduleConfig(warmup_steps=10, min_lr=0.5)
    assert lr_at(0, config) == pytest.approx(0.2)
    assert lr_at(9, config) == pytest.approx(2.0)
    assert lr_at(10, config) == pytest.approx(2.0)
    assert lr_at(60, config) == pytest.approx(1.25)  # half way between 2 and 0.5
    assert 0.5 < lr_at(109, config) < 0.501


def test_constant_does_not_change() -> None:
    assert {lr_at(s, ScheduleConfig(kind="constant", warmup_steps=0)) for s in (0, 50, 109)} == {2.0}


def test_a_warm_up_in_epochs_counts_full_epochs_even_if_the_last_one_is_shorter() -> None:
    """A run of 110 steps has epochs of 100 and 10 steps: half an epoch is 50 steps, not 110 / 2 / 2."""
    rate = build_lr_schedule(ScheduleConfig(warmup_epochs=0.5), lr=2.0, steps_per_epoch=100)
    assert [rate(Progress(step, 110, step // 100, 2)) for step in (24, 49)] == pytest.approx([1.0, 2.0])


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(UserError, match=r"schedule.kind=cosin is not known; did you mean 'cosine'"):
        build_lr_schedule(ScheduleConfig(kind="cosin"), 1.0, 10)


def test_cooldown_is_constant_and_then_linear() -> None:
    config = ScheduleConfig(kind="cooldown", cooldown=0.25, warmup_steps=20, min_lr=0.1)
    rate = build_lr_schedule(config, 1.1, steps_per_epoch=10)
    rates = [rate(Progress(step, 100, 0, 1)) for step in range(101)]
    assert rates[20:80] == [1.1] * 60  # 60 of the 80 steps after the warm-up
    assert rates[90] == pytest.approx(0.6) and rates[100] == pytest.approx(0.1)
