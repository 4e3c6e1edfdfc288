"""Ranges of the numbers in a config, each checked before anything is built."""

import math
from collections.abc import Callable
from typing import Any

from clipx.config import EvalConfig, RunConfig
from clipx.errors import UserError

Rule = tuple[Callable[[Any], bool], str]  # holds for good values; what they are, in words

POSITIVE: Rule = (lambda v: 0 < v < math.inf, "more than 0")
AT_LEAST_0: Rule = (lambda v: 0 <= v < math.inf, "0 or more")
AT_LEAST_1: Rule = (lambda v: v >= 1, "1 or more")
SHARE: Rule = (lambda v: 0 <= v <= 1, "0..1")
BETAS: Rule = (lambda v: len(v) == 2 and all(0 <= b < 1 for b in v), "two numbers in 0..1, 1 excluded")

RUN: dict[str, Rule] = {
    "seed": AT_LEAST_0,
    "data.num_samples": AT_LEAST_1,
    "data.shuffle_buffer": AT_LEAST_1,
    "data.block": AT_LEAST_0,
    "data.workers": AT_LEAST_0,
    "data.max_bad_rate": SHARE,
    "temperature.tau": POSITIVE,
    "temperature.max_scale": POSITIVE,
    "temperature.lr_factor": AT_LEAST_0,
    "optimizer.lr": AT_LEAST_0,
    "optimizer.betas": BETAS,
    "optimizer.eps": POSITIVE,
    "optimizer.weight_decay": AT_LEAST_0,
    "schedule.warmup_steps": AT_LEAST_0,
    "schedule.min_lr": AT_LEAST_0,
    "train.epochs": AT_LEAST_1,
    "train.samples": AT_LEAST_1,
    "train.batch_size": AT_LEAST_1,
    "train.grad_clip": POSITIVE,
    "train.save_every": AT_LEAST_1,
    "train.keep": AT_LEAST_1,
    "train.processes": AT_LEAST_1,
    "log.every": AT_LEAST_1,
}
EVALUATION: dict[str, Rule] = {"batch_size": AT_LEAST_1, "workers": AT_LEAST_0}


def check(config: RunConfig | EvalConfig, rules: dict[str, Rule]) -> None:
    """Raises UserError naming the first setting that is out of its range; unset ones are not looked at."""
    for key, (holds, allowed) in rules.items():
        value: Any = config
        for part in key.split("."):
            value = getattr(value, part)
        if value is not None and not holds(value):
            raise UserError(f"{key}={value} is out of range; allowed: {allowed}")
