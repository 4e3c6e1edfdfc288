"""What a training step needs, made from the settings."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from clipx import distributed, mixing, objectives, optim, schedule, start
from clipx.config import RunConfig
from clipx.data.sampler import num_train
from clipx.device import PRECISIONS, grad_scaler
from clipx.ema import Average
from clipx.errors import UserError
from clipx.meter import Laps
from clipx.models import batch_norm, clip
from clipx.objectives.base import Objective
from clipx.sample_table import SampleTable
from clipx.state import RunState
from clipx.tables import lookup, one_of
from clipx.types import Progress


@dataclass
class Parts:
    """What a step needs."""

    config: RunConfig
    device: torch.device
    model: clip.ClipModel
    parallel: nn.Module  # the model, in DDP if there are several processes
    mix: mixing.Mixing
    objective: Objective
    learning_rate: Callable[[Progress], float]
    state: RunState
    laps: Laps
    bad_steps: int = 0  # the last ones, in a row, whose loss or gradient was not finite: skipped


def build(
    config: RunConfig,
    device: torch.device,
    num_samples: int,
    data: str,
    model_of: Callable[[RunConfig], clip.ClipModel] = start.model,
) -> Parts:
    """Model, objective and optimizer from the settings, on the device.

    Raises:
        UserError: a setting is unknown or out of range, or weights are missing.
    """
    torch.manual_seed(config.seed)
    one_of(config.train.precision, PRECISIONS, "train.precision")  # said before weights are read
    check_split(config, distributed.world())
    objective = objectives.build(config.objective, num_samples)
    mix = mixing.build(config.mixing, config.seed)
    steps_per_epoch = num_train(num_samples, config.data.held_out) // config.train.batch_size
    learning_rate = schedule.build(config.schedule, config.optimizer.lr, steps_per_epoch)
    model = model_of(config).to(device).to(memory_format=torch.channels_last)
    parallel = _parallel(model, config, device)
    home = lookup({"auto": device, "cpu": torch.device("cpu")}, config.train.table_device, "train.table_device")
    state = RunState(
        model,
        optim.build(model, config),
        data,
        objective=objective,
        table=SampleTable(objective.columns, num_samples, home),
        scaler=grad_scaler(config.train.precision, device),
        average=None if config.train.ema is None else Average(model, config.train.ema),
    )
    return Parts(config, device, model, parallel, mix, objective, learning_rate, state, Laps(device))


def check_split(config: RunConfig, processes: int) -> None:
    """Raises UserError where the global batch cannot be split evenly."""
    size, parts = config.train.batch_size, config.train.accumulation
    if size % (processes * parts):
        raise UserError(
            f"train.batch_size={size} must be divisible by {processes * parts} ({processes} processes x "
            f"train.accumulation={parts})"
        )


def _parallel(model: clip.ClipModel, config: RunConfig, device: torch.device) -> nn.Module:
    """The model as the step calls it. Towers are compiled in place, which keeps the names in the state dict."""
    several = distributed.world() > 1
    if several and config.train.sync_batchnorm:
        batch_norm.synchronise(model, device)
    if config.train.compile:
        for tower in (model.image, model.text):
            tower.compile()
    return DistributedDataParallel(model) if several else model
