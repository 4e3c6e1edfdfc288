"""Every setting has a meaning, and values that are not allowed are refused with the name of the setting."""

from collections.abc import Collection
from copy import deepcopy
from operator import attrgetter

import pytest

from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig, TrainConfig
from clipx.config.setting import check, settings_of
from clipx.data.preprocess.tokenizer import CLEANERS
from clipx.errors import UserError
from clipx.models import temperature
from clipx.models.kernels import FREQUENCIES, REDUCTIONS
from clipx.models.point_sets import BOUNDS
from clipx.training.modality_mixing import MASKS
from clipx.training.optimizer import SCHEDULES
from clipx.utils.device import PRECISIONS

BAD = {
    "data.max_bad_rate": 1.5,
    "data.scenes.popularity_skew": float("nan"),
    "data.crop_scale": [0.9],
    "model.points.alpha": [0.0, 0.0],
    "temperature.max_scale": 0.0,
    "optimizer.betas": [1.5, 0.9],
    "train.keep": 0,
    "train.samples": 2**64,
}
TABLES: dict[str, Collection[str]] = {  # setting -> the table in which code looks up its value
    "data.clean": CLEANERS,
    "model.points.kernel": {"none", "linear", *FREQUENCIES},
    "model.points.weights": BOUNDS,
    "model.points.reduce": REDUCTIONS,
    "temperature.kind": temperature.TEMPERATURES,
    "temperature.parameterisation": temperature.PARAMETERISATIONS,
    "temperature.every": temperature.FRACTIONS,
    "mixing.kind": MASKS,
    "schedule.kind": SCHEDULES,
    "train.precision": PRECISIONS,
}


def run() -> RunConfig:
    return RunConfig(name="t", recipe="t", train=TrainConfig(epochs=1, batch_size=8))


def test_a_value_out_of_range_is_refused_with_its_key() -> None:
    for key, value in BAD.items():
        config = run()
        group, _, field = key.rpartition(".")
        setattr(attrgetter(group)(config), field, value)
        with pytest.raises(UserError, match=rf"{key}=.* is out of range; allowed: "):
            check(config)


def test_the_defaults_are_allowed() -> None:
    for config in (run(), EvalConfig()):
        before = deepcopy(config)
        check(config)
        assert config == before


def test_the_choices_of_a_setting_are_the_names_in_its_table() -> None:
    known = settings_of(RunConfig)
    assert {key: set(known[key].choices) for key in TABLES} == {key: set(table) for key, table in TABLES.items()}
    evaluation = settings_of(EvalConfig)
    for key, key_of_run in (("precision", "train.precision"), ("device", "train.device"), ("wandb", "log.wandb")):
        assert evaluation[key].choices == known[key_of_run].choices


def test_configs_do_not_share_lists() -> None:
    one, other = run(), run()
    one.data.urls.append("x")
    assert other.data.urls == []
