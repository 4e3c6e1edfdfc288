"""Learning-rate schedules: pure functions of the progress of a run."""

import math
from collections.abc import Callable

from clipx.config.schema import ScheduleConfig
from clipx.types import Progress
from clipx.utils.registry import lookup

# progress in 0..1 and schedule.cooldown -> factor on the learning rate
SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "cosine": lambda progress, cooldown: 0.5 * (1 + math.cos(math.pi * progress)),
    "constant": lambda progress, cooldown: 1.0,
    "cooldown": lambda progress, cooldown: min(1.0, (1 - progress) / cooldown),  # linear to 0 over the last share
}


def build_lr_schedule(config: ScheduleConfig, lr: float, steps_per_epoch: int) -> Callable[[Progress], float]:
    """Return the learning rate as a function of progress: linear warm-up to lr, then the schedule down to min_lr.

    The warm-up starts at warmup_lr, but the first step already takes the next value on the line. Raises UserError for
    an unknown schedule.kind.
    """
    shape = lookup(SCHEDULES, config.kind, "schedule.kind")
    warmup = config.warmup_steps if config.warmup_epochs is None else round(config.warmup_epochs * steps_per_epoch)

    def learning_rate(progress: Progress) -> float:
        if progress.step < warmup:
            return config.warmup_lr + (lr - config.warmup_lr) * (progress.step + 1) / warmup
        remaining = max(1, progress.total_steps - warmup)
        return config.min_lr + (lr - config.min_lr) * shape((progress.step - warmup) / remaining, config.cooldown)

    return learning_rate
