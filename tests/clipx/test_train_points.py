"""Training with weighted point sets learns and resumes exactly, although each step draws random frequencies."""

import shutil
from pathlib import Path

import torch

from clipx.config.schema import RunConfig
from clipx.run.checkpoint import checkpoints
from clipx.train import fit
from tests.helpers.runs import log, prepared, trained, weights


def small_config(folder: Path, name: str) -> RunConfig:
    config = prepared(folder, samples=32, epochs=4, save_every=6)
    config.name, config.log.every = name, 1
    config.model.image.name, config.model.text.name = "small:vit", "small:transformer"
    config.model.points.kernel, config.model.points.features_train = "imq", 128
    config.temperature.parameterisation, config.temperature.min_scale = "identity", 1.0
    config.schedule.warmup_steps = 2
    return config


def test_point_sets_learn_and_a_resumed_run_ends_in_the_same_weights(tmp_path: Path) -> None:
    config = small_config(tmp_path, "whole")
    run = trained(config)
    losses = [row["loss"] for row in log(run)]
    assert sum(losses[-4:]) < 0.95 * sum(losses[:4])
    expected = weights(run)
    shutil.rmtree(checkpoints(run)[-1])  # step 16; step 12 remains
    fit(config, run)
    for name, value in weights(run).items():
        assert torch.equal(value, expected[name]), name
