"""Retention: which steps are saved, and which checkpoints are kept."""

import math
from collections.abc import Mapping

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.geometry import METRICS

MetricsByStep = Mapping[int, Mapping[str, float]]  # step of a checkpoint -> metrics measured there
SIGNS = {"min": 1.0, "max": -1.0}


class RetentionPolicy:
    """Applies train.save_every, keep, keep_every and keep_best."""

    def __init__(self, config: RunConfig) -> None:
        """Raise UserError if train.keep_best is not min:METRIC or max:METRIC, or the metric is not measured."""
        self.train = config.train
        direction, _, self.best_metric = (config.train.keep_best or "").partition(":")  # a metric of the geometry probe
        self.best_sign = SIGNS.get(direction, 1.0)
        if config.train.keep_best is None:
            return
        if direction not in SIGNS or self.best_metric not in METRICS:
            allowed = f"min:METRIC or max:METRIC; metrics: {', '.join(sorted(METRICS))}"
            raise UserError(f"train.keep_best={config.train.keep_best} must be {allowed}")
        if not config.log.geometry_every:
            raise UserError(f"train.keep_best={config.train.keep_best} must be measured: set log.geometry_every")

    def due(self, step: int) -> bool:
        """Return True if this step is saved regardless of its metrics."""
        return step % self.train.save_every == 0 or self._is_multiple(step)

    def best_step(self, found: MetricsByStep) -> int | None:
        """Return the step with the best finite metric, the earliest if several are equal; None if none is finite."""
        values = {step: self.best_sign * m.get(self.best_metric, math.nan) for step, m in found.items()}
        finite = [step for step, value in values.items() if math.isfinite(value)]
        return min(finite, key=lambda step: (values[step], step), default=None)

    def retained(self, found: MetricsByStep) -> set[int]:
        """Return the steps to keep: the last ones, multiples of keep_every, and the best."""
        last = set(sorted(found)[-self.train.keep :])
        best = self.best_step(found)
        return last | set(filter(self._is_multiple, found)) | ({best} if best is not None else set())

    def _is_multiple(self, step: int) -> bool:
        return self.train.keep_every is not None and step % self.train.keep_every == 0
