"""Retention: which steps are saved, and which checkpoints are kept."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.geometry import METRICS

MetricsByStep = Mapping[int, Mapping[str, float]]  # step of a checkpoint -> metrics measured there
SIGNS = {"min": 1.0, "max": -1.0}


@dataclass(frozen=True)
class RetentionPolicy:
    """The settings train.save_every, keep, keep_every and keep_best."""

    save_every: int
    keep: int
    keep_every: int | None
    best_metric: str | None  # of the geometry probe
    best_sign: float = 1.0  # 1 if lower is better, -1 if higher is

    def due(self, step: int) -> bool:
        """Return True if this step is saved whatever its metrics."""
        return step % self.save_every == 0 or bool(self.keep_every and step % self.keep_every == 0)

    def best_step(self, found: MetricsByStep) -> int | None:
        """Return the step with the best finite value, the first of equals; None without one."""
        values = {step: self.best_sign * m.get(self.best_metric or "", math.nan) for step, m in found.items()}
        finite = [step for step, value in values.items() if math.isfinite(value)]
        return min(finite, key=lambda step: (values[step], step), default=None)

    def retained(self, found: MetricsByStep) -> set[int]:
        """Return the steps to keep: the last ones, multiples of keep_every, and the best."""
        last = set(sorted(found)[-self.keep :])
        multiples = {step for step in found if self.keep_every and step % self.keep_every == 0}
        best = self.best_step(found)
        return last | multiples | ({best} if best is not None else set())


def build_policy(config: RunConfig) -> RetentionPolicy:
    """Build the policy from the settings.

    Raises:
        UserError: train.keep_best is not min:METRIC or max:METRIC, or the metric is not measured.
    """
    train = config.train
    if train.keep_best is None:
        return RetentionPolicy(train.save_every, train.keep, train.keep_every, None)
    direction, _, metric = train.keep_best.partition(":")
    if direction not in SIGNS or metric not in METRICS:
        allowed = f"min:METRIC or max:METRIC, of {', '.join(sorted(METRICS))}"
        raise UserError(f"train.keep_best={train.keep_best} must be {allowed}")
    if not config.log.geometry_every:
        raise UserError(f"train.keep_best={train.keep_best} must be measured: set log.geometry_every")
    return RetentionPolicy(train.save_every, train.keep, train.keep_every, metric, SIGNS[direction])
