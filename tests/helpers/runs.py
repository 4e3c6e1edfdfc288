"""Small runs on disk: settings with their data, trained and untrained runs, and what they wrote."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from clipx.config.schema import RunConfig
from clipx.models import clip
from clipx.run.checkpoint import WEIGHTS, checkpoints
from clipx.run.folder import RunFolder
from clipx.run.saving import TrainState
from clipx.train import Outcome, fit
from tests.helpers.folder import settings, write_shards


def prepared(root: Path, samples: int = 16, epochs: int = 2, save_every: int = 200, processes: int = 1) -> RunConfig:
    """Return the settings of a run on root/train. If this folder is missing, write it with `samples` samples."""
    if not (root / "train").exists():
        write_shards(root / "train", samples)
    return settings(root, epochs, save_every, processes)


def with_tower(root: Path, name: str, pretrained: str | None = None) -> RunConfig:
    """Return the settings of a run on root/train whose two towers have this name and these start weights."""
    config = settings(root, text=name)
    config.model.image.name = name
    config.model.image.pretrained = config.model.text.pretrained = pretrained
    return config


def prepared_point_sets(root: Path, kernel: str = "imq") -> RunConfig:
    """Return the settings of a run with this kernel of point sets (`none`: single points) and no training step."""
    config = prepared(root)
    config.name = kernel
    config.train.epochs, config.train.samples = None, 0
    config.model.image.name, config.model.text.name = "small:vit", "small:transformer"
    config.model.points.kernel = kernel
    config.data.before_projection = True
    return config


def trained(config: RunConfig) -> Path:
    """Train a run to its end; return its directory."""
    run = RunFolder.create(config).path
    assert fit(config, run) is Outcome.FINISHED
    return run


def fit_as_rank(path: str, environment: dict[str, str]) -> None:
    """Run `fit` as one rank of the current process group."""
    assert "WORLD_SIZE" not in os.environ
    os.environ.update(environment)
    fit(RunFolder(Path(path)).load_config(), Path(path))


def untrained(config: RunConfig, step: int = 3) -> Path:
    """Write a run with one checkpoint of random weights; return its directory."""
    run = RunFolder.create(config).path
    model = clip.build_model(config, pretrained=False)
    TrainState(model, torch.optim.SGD(model.parameters()), "16:data", step=step).save(run)
    return run


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a .jsonl file."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def log(run: Path) -> list[dict[str, Any]]:
    return lines(run / "log.jsonl")


def weights(run: Path) -> dict[str, Tensor]:
    """Return the weights of a run's last checkpoint."""
    return load_file(checkpoints(run)[-1] / WEIGHTS)
