"""Ranges of the numbers in a config, each checked before anything is built."""

import math
from collections.abc import Callable
from typing import Any

from clipx.config.schema import EvalConfig, RunConfig
from clipx.errors import UserError

Rule = tuple[Callable[[Any], bool], str]  # holds for good values; what they are, in words

POSITIVE: Rule = (lambda v: 0 < v < math.inf, "more than 0")
AT_LEAST_0: Rule = (lambda v: 0 <= v < math.inf, "0 or more")
AT_LEAST_1: Rule = (lambda v: v >= 1, "1 or more")
AT_LEAST_2: Rule = (lambda v: v >= 2, "2 or more")
ALL_AT_LEAST_1: Rule = (lambda v: all(n >= 1 for n in v), "numbers of 1 or more")
AT_LEAST_3: Rule = (lambda v: v >= 3, "3 or more: a start, an end and one token between")
RAND_AUGMENT: Rule = (lambda v: len(v) == 2 and v[0] >= 1 and 0 <= v[1] <= 10, "[n, m] with n >= 1 and m in 0..10")
SHARE: Rule = (lambda v: 0 <= v <= 1, "0..1")
FACTOR: Rule = (lambda v: 0 < v <= 1, "0..1, 0 excluded")
DECAY: Rule = (lambda v: 0 <= v < 1, "0..1, 1 excluded")
BETAS: Rule = (lambda v: len(v) == 2 and all(0 <= b < 1 for b in v), "two numbers in 0..1, 1 excluded")

RUN: dict[str, Rule] = {
    "seed": AT_LEAST_0,
    "data.num_samples": AT_LEAST_1,
    "data.shuffle_buffer": AT_LEAST_1,
    "data.block": AT_LEAST_0,
    "data.workers": AT_LEAST_0,
    "data.stall_seconds": POSITIVE,
    "data.max_bad_rate": SHARE,
    "data.held_out": SHARE,
    "data.rand_augment": RAND_AUGMENT,
    "model.embed_dim": AT_LEAST_1,
    "model.projection_lr_factor": AT_LEAST_0,
    "model.image.lr_factor": AT_LEAST_0,
    "model.image.layer_decay": FACTOR,
    "model.image.weight_decay": AT_LEAST_0,
    "model.image.size": AT_LEAST_1,
    "model.text.lr_factor": AT_LEAST_0,
    "model.text.layer_decay": FACTOR,
    "model.text.weight_decay": AT_LEAST_0,
    "model.text.context_length": AT_LEAST_3,
    "model.points.width": POSITIVE,
    "model.points.features_train": AT_LEAST_1,
    "model.points.features_eval": AT_LEAST_1,
    "temperature.tau": POSITIVE,
    "temperature.tau_end": POSITIVE,
    "temperature.min_scale": POSITIVE,
    "temperature.max_scale": POSITIVE,
    "temperature.s": POSITIVE,
    "temperature.periods": POSITIVE,
    "temperature.lr_factor": AT_LEAST_0,
    "mixing.probability": SHARE,
    "optimizer.lr": AT_LEAST_0,
    "optimizer.betas": BETAS,
    "optimizer.eps": POSITIVE,
    "optimizer.weight_decay": AT_LEAST_0,
    "schedule.cooldown": FACTOR,
    "schedule.warmup_steps": AT_LEAST_0,
    "schedule.warmup_epochs": AT_LEAST_0,
    "schedule.warmup_lr": AT_LEAST_0,
    "schedule.min_lr": AT_LEAST_0,
    "train.epochs": AT_LEAST_1,
    "train.samples": AT_LEAST_0,
    "train.batch_size": AT_LEAST_1,
    "train.grad_clip": POSITIVE,
    "train.accumulation": AT_LEAST_1,
    "train.ema": DECAY,
    "train.max_bad_steps": AT_LEAST_1,
    "train.save_every": AT_LEAST_1,
    "train.keep": AT_LEAST_1,
    "train.keep_every": AT_LEAST_1,
    "train.max_minutes": POSITIVE,
    "train.processes": AT_LEAST_1,
    "launch.nodes": AT_LEAST_1,
    "launch.max_restarts": AT_LEAST_0,
    "log.every": AT_LEAST_1,
    "log.geometry_every": AT_LEAST_0,
    "log.geometry_pairs": AT_LEAST_2,
    "log.evaluate_every": AT_LEAST_0,
}
EVALUATION: dict[str, Rule] = {
    "batch_size": AT_LEAST_1,
    "workers": AT_LEAST_0,
    "processes": AT_LEAST_1,
    "pools": ALL_AT_LEAST_1,
}


def check(config: RunConfig | EvalConfig, rules: dict[str, Rule]) -> None:
    """Raises UserError naming the first setting that is out of its range; unset ones are not looked at."""
    for key, (holds, allowed) in rules.items():
        value: Any = config
        for part in key.split("."):
            value = getattr(value, part)
        if value is not None and not holds(value):
            raise UserError(f"{key}={value} is out of range; allowed: {allowed}")


def check_together(config: RunConfig) -> None:
    """Raises UserError where settings that are right by themselves make no sense together."""
    if "keyword" in config.objective and not config.data.keywords:
        raise UserError(
            "objective.keyword needs labels, but data.keywords is empty: set data.keywords=[numbers], or other lists "
            "(colours, directions) or words"
        )
    if config.log.evaluate_every and not config.data.evaluation:
        raise UserError(
            f"log.evaluate_every={config.log.evaluate_every} has nothing to evaluate on, as data.evaluation is empty; "
            "allowed: 0, or data.evaluation=[KIND:FOLDER,...] with sets below data.root"
        )
