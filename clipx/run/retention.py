"""Which steps are checkpointed, and which checkpoints are kept."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.geometry import METRICS

Metrics = Mapping[str, float]
SIGNS = {"min": 1.0, "max": -1.0}


@dataclass(frozen=True)
class Best:
    """train.keep_best: a number of the probe, and whether less or more of it is better."""

    metric: str
    sign: float  # 1 where less is better

    def of(self, found: Mapping[int, Metrics]) -> int | None:
        """The step with the best value, the first of equal ones; None where nothing finite was measured."""
        values = {
            step: self.sign * m[self.metric] for step, m in found.items() if math.isfinite(m.get(self.metric, math.nan))
        }
        return min(values, key=lambda step: (values[step], step), default=None)


@dataclass(frozen=True)
class Policy:
    """What train.save_every, keep, keep_every and keep_best say."""

    save_every: int
    keep: int
    keep_every: int | None
    best: Best | None

    def due(self, step: int) -> bool:
        """Whether a checkpoint belongs to this step, whatever was measured."""
        return step % self.save_every == 0 or bool(self.keep_every and step % self.keep_every == 0)

    def retained(self, found: Mapping[int, Metrics]) -> set[int]:
        """The steps that stay, of checkpoints with what the probe measured at them."""
        last = set(sorted(found)[-self.keep :])
        for_ever = {step for step in found if self.keep_every and step % self.keep_every == 0}
        best = self.best.of(found) if self.best else None
        return last | for_ever | ({best} if best is not None else set())


def policy(config: RunConfig) -> Policy:
    """The policy of the settings.

    Raises:
        UserError: train.keep_best is not min:METRIC or max:METRIC, or nothing measures it.
    """
    train, best = config.train, None
    if train.keep_best is not None:
        direction, _, metric = train.keep_best.partition(":")
        if direction not in SIGNS or metric not in METRICS:
            allowed = f"min:METRIC or max:METRIC, of {', '.join(sorted(METRICS))}"
            raise UserError(f"train.keep_best={train.keep_best} must be {allowed}")
        best = Best(metric, SIGNS[direction])
        if not config.log.geometry_every:
            raise UserError(
                f"train.keep_best={train.keep_best} needs the number to be measured: set log.geometry_every"
            )
    return Policy(train.save_every, train.keep, train.keep_every, best)
