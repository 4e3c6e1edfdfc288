"""Learning rates as pure functions of the progress."""

import math
from collections.abc import Callable

from clipx.config.schema import ScheduleConfig
from clipx.types import Progress
from clipx.utils.registry import lookup


def cosine(progress: float, cooldown: float) -> float:
    """1 at progress 0, 0 at progress 1."""
    return 0.5 * (1 + math.cos(math.pi * progress))


def constant(progress: float, cooldown: float) -> float:
    """1 throughout."""
    return 1.0


def linear_cooldown(progress: float, cooldown: float) -> float:
    """1, and along a line to 0 in the last part of the run, `cooldown` of it."""
    return min(1.0, (1 - progress) / cooldown)


SCHEDULES = {"cosine": cosine, "constant": constant, "cooldown": linear_cooldown}


def build_lr_schedule(config: ScheduleConfig, lr: float, steps_per_epoch: int) -> Callable[[Progress], float]:
    """The learning rate at a progress: linear from warmup_lr (left out) to lr, then `kind` down to min_lr.

    Raises:
        UserError: unknown schedule.kind.
    """
    shape = lookup(SCHEDULES, config.kind, "schedule.kind")
    warmup = config.warmup_steps if config.warmup_epochs is None else round(config.warmup_epochs * steps_per_epoch)

    def learning_rate(progress: Progress) -> float:
        if progress.step < warmup:
            return config.warmup_lr + (lr - config.warmup_lr) * (progress.step + 1) / warmup
        rest = max(1, progress.total_steps - warmup)
        return config.min_lr + (lr - config.min_lr) * shape((progress.step - warmup) / rest, config.cooldown)

    return learning_rate
