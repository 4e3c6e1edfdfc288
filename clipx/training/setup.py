"""What a training step needs, made from the settings."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from clipx import distributed, objectives
from clipx.config.schema import RunConfig
from clipx.data.sampler import num_train
from clipx.errors import UserError
from clipx.models import clip, sync_batchnorm
from clipx.models.ema import Average
from clipx.objectives.base import Objective
from clipx.run.checkpoint import TrainState
from clipx.sample_table import SampleTable
from clipx.training import initial_weights, lr_schedule, modality_mixing, optimizer
from clipx.training.timing import StepTimer
from clipx.types import Progress
from clipx.utils.device import PRECISIONS, grad_scaler
from clipx.utils.registry import lookup, one_of


@dataclass
class TrainComponents:
    """What a step needs."""

    config: RunConfig
    device: torch.device
    model: clip.ClipModel
    parallel: nn.Module  # the model, in DDP if there are several processes
    mix: modality_mixing.Mixing
    objective: Objective
    learning_rate: Callable[[Progress], float]
    state: TrainState
    laps: StepTimer
    bad_steps: int = 0  # the last ones, in a row, whose loss or gradient was not finite: skipped


def build_components(
    config: RunConfig,
    device: torch.device,
    num_samples: int,
    data: str,
    model_of: Callable[[RunConfig], clip.ClipModel] = initial_weights.model,
) -> TrainComponents:
    """Model, objective and optimizer from the settings, on the device.

    Raises:
        UserError: a setting is unknown or out of range, or weights are missing.
    """
    torch.manual_seed(config.seed)
    one_of(config.train.precision, PRECISIONS, "train.precision")  # said before weights are read
    check_split(config, distributed.world_size())
    objective = objectives.build(config.objective, num_samples)
    mix = modality_mixing.build_mixing(config.mixing, config.seed)
    steps_per_epoch = num_train(num_samples, config.data.held_out) // config.train.batch_size
    learning_rate = lr_schedule.build_lr_schedule(config.schedule, config.optimizer.lr, steps_per_epoch)
    model = model_of(config).to(device).to(memory_format=torch.channels_last)
    parallel = _parallel(model, config, device)
    home = lookup({"auto": device, "cpu": torch.device("cpu")}, config.train.table_device, "train.table_device")
    state = TrainState(
        model,
        optimizer.build_optimizer(model, config),
        data,
        objective=objective,
        table=SampleTable(objective.columns, num_samples, home),
        scaler=grad_scaler(config.train.precision, device),
        average=None if config.train.ema is None else Average(model, config.train.ema),
    )
    return TrainComponents(config, device, model, parallel, mix, objective, learning_rate, state, StepTimer(device))


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
    several = distributed.world_size() > 1
    if several and config.train.sync_batchnorm:
        sync_batchnorm.enable_sync_batchnorm(model, device)
    if config.train.compile:
        for tower in (model.image, model.text):
            tower.compile()
    return DistributedDataParallel(model) if several else model
