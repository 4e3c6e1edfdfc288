"""Every number that a run cannot work with is refused by name, before anything is built."""

import pytest

from clipx.config import ranges
from clipx.config.schema import RunConfig, TrainConfig
from clipx.errors import UserError

BAD = {
    "seed": -1,
    "data.workers": -1,
    "data.max_bad_rate": 1.5,
    "temperature.tau": float("nan"),
    "temperature.max_scale": 0.0,
    "optimizer.lr": -1.0,
    "optimizer.betas": [1.5, 0.9],
    "schedule.warmup_steps": -5,
    "train.grad_clip": 0.0,
    "train.save_every": 0,
    "train.keep": 0,
    "train.processes": 0,
}


def run() -> RunConfig:
    return RunConfig(name="t", recipe="t", train=TrainConfig(epochs=1, batch_size=8))


@pytest.mark.parametrize("key", BAD)
def test_values_out_of_range_are_named(key: str) -> None:
    config = run()
    *groups, field = key.split(".")
    node: object = config
    for group in groups:
        node = getattr(node, group)
    setattr(node, field, BAD[key])
    with pytest.raises(UserError, match=rf"{key}=.* is out of range; allowed: "):
        ranges.check(config, ranges.RUN)


def refused(config: RunConfig) -> list[str]:
    """Keys of the rules that the config breaks."""
    broken = []
    for key, rule in ranges.RUN.items():
        try:
            ranges.check(config, {key: rule})
        except UserError:
            broken.append(key)
    return broken


def test_the_defaults_are_in_range() -> None:
    assert refused(run()) == []
