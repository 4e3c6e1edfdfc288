"""Learning rates at the points where they are known."""

import pytest

from clipx.config.schema import ScheduleConfig
from clipx.errors import UserError
from clipx.training.lr_schedule import build_lr_schedule
from clipx.types import Progress


def at(step: int, config: ScheduleConfig) -> float:
    return build_lr_schedule(config, lr=2.0, steps_per_epoch=110)(
        Progress(step=step, total_steps=110, epoch=0, total_epochs=1)
    )


def test_cosine_after_warmup() -> None:
    config = ScheduleConfig(warmup_steps=10, min_lr=0.5)
    assert at(0, config) == pytest.approx(0.2)
    assert at(9, config) == pytest.approx(2.0)
    assert at(10, config) == pytest.approx(2.0)
    assert at(60, config) == pytest.approx(1.25)  # half way between 2 and 0.5
    assert 0.5 < at(109, config) < 0.501


def test_constant_stays() -> None:
    assert {at(s, ScheduleConfig(kind="constant", warmup_steps=0)) for s in (0, 50, 109)} == {2.0}


def test_a_warm_up_in_epochs_counts_whole_epochs_where_the_last_one_is_cut() -> None:
    """Half of an epoch of 100 steps in a run of 110, which begins two epochs: 50 steps, not 110 / 2 / 2."""
    rate = build_lr_schedule(ScheduleConfig(warmup_epochs=0.5), lr=2.0, steps_per_epoch=100)
    assert [rate(Progress(step, 110, step // 100, 2)) for step in (24, 49)] == pytest.approx([1.0, 2.0])


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(UserError, match=r"schedule.kind=cosin is not known; did you mean 'cosine'"):
        build_lr_schedule(ScheduleConfig(kind="cosin"), 1.0, 10)


def test_cooldown_is_constant_and_then_a_line_to_the_end() -> None:
    config = ScheduleConfig(kind="cooldown", cooldown=0.25, warmup_steps=20, min_lr=0.1)
    rate = build_lr_schedule(config, 1.1, steps_per_epoch=10)
    rates = [rate(Progress(step, 100, 0, 1)) for step in range(101)]
    assert rates[20:80] == [1.1] * 60  # 60 of the 80 steps after the warm-up
    assert rates[90] == pytest.approx(0.6) and rates[100] == pytest.approx(0.1)
