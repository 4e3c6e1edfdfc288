"""Builds the objects of a training step from the settings: model with initial weights, optimizer, objective, table."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from timm.layers.norm_act import convert_sync_batchnorm
from timm.utils.model_ema import ModelEmaV3
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from clipx import distributed, objectives
from clipx.config.presets import check_batch_size
from clipx.config.schema import RunConfig
from clipx.config.setting import check
from clipx.data.sampler import num_train
from clipx.errors import UserError
from clipx.models import clip
from clipx.run.initial_weights import build_initial_model
from clipx.run.saving import TrainState
from clipx.sample_table import SampleTable
from clipx.training import modality_mixing, optimizer
from clipx.training.teacher import Teacher, load_teacher
from clipx.training.timing import StepTimer
from clipx.types import Inputs, Progress
from clipx.utils.device import missing_compiler


@dataclass
class TrainComponents:
    """The state of a run and the other objects that a step needs."""

    config: RunConfig
    device: torch.device
    state: TrainState
    forward: nn.Module  # what a step calls: state.model, or its replica that averages the gradients (DDP)
    mix: modality_mixing.Mixing
    learning_rate: Callable[[Progress], float]
    timer: StepTimer
    teacher: Teacher | None = None
    bad_steps: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64))
    """Number [] of consecutive skipped steps so far (loss or gradient not finite). Reading it waits for the device."""
    all_bad_steps: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64))
    """Number [] of all skipped steps since the start of the process."""


def build_components(
    config: RunConfig,
    device: torch.device,
    num_samples: int,
    data_fingerprint: str,
    build_model: Callable[[RunConfig], clip.ClipModel] = build_initial_model,
    build_teacher: Callable[[RunConfig, Inputs, torch.device], Teacher] = load_teacher,
) -> TrainComponents:
    """Build model, objective, optimizer and sample table on the device, and the teacher if the objective needs it.

    Raises UserError: an unknown or wrong setting, weights or a compiler are missing, or the teacher has other inputs.
    """
    check(config)
    torch.manual_seed(config.seed)
    check_batch_size(config, distributed.world_size())
    pairs = num_train(num_samples, config.data.held_out)
    objective = objectives.build(config.objective, pairs)
    objective.check_settings(config.model.teacher, config.temperature.bias)
    mix = modality_mixing.build_mixing(config.mixing.kind, config.mixing.probability, config.seed)
    steps_per_epoch = pairs // config.train.batch_size
    learning_rate = optimizer.build_lr_schedule(config.schedule, config.optimizer.lr, steps_per_epoch)
    model = build_model(config).to(device).to(memory_format=torch.channels_last)  # faster convolutions
    # ModelEmaV3 copies the model, so it comes before DDP wraps it
    ema = ModelEmaV3(model, config.train.ema) if config.train.ema is not None else None
    forward = _parallelise(model, config, device)
    teacher = None
    if "teacher" in objective.needs:
        teacher = build_teacher(config, model.inputs, device)
        if teacher.frozen_towers != model.tower_digests():
            raise UserError(
                f"model.teacher={config.model.teacher} and this run must take the same inputs: features of the same "
                "frozen towers (data.features, model.image, model.text), or pixels and tokens"
            )
    table_device = torch.device("cpu") if config.train.table_device == "cpu" else device
    state = TrainState(
        model,
        optimizer.build_optimizer(model, config),
        data_fingerprint,
        objective=objective,
        table=SampleTable(objective.columns, num_samples, table_device),
        # keeps small fp16 gradients from underflow
        scaler=torch.amp.GradScaler(device.type, enabled=config.train.precision == "fp16"),
        ema=ema,
    )
    return TrainComponents(config, device, state, forward, mix, learning_rate, StepTimer(device), teacher)


def _parallelise(model: clip.ClipModel, config: RunConfig, device: torch.device) -> nn.Module:
    """Compile, synchronise batch norms and share the model between the processes, as configured.

    Towers are compiled in place, which keeps the names in the state dict.
    """
    several = distributed.world_size() > 1
    if several and config.train.sync_batchnorm:
        if device.type == "cpu":
            raise UserError(
                "train.sync_batchnorm=true needs GPUs: torch synchronises no batch norms on CPUs; allowed: false"
            )
        # timm's, because torch's loses the activation inside timm's norms
        convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    if config.train.compile:
        if missing := missing_compiler(device):
            raise UserError(
                f"train.compile=true needs {missing} on {device.type}: install it, or set train.compile=false"
            )
        for tower in (model.image, model.text):
            tower.compile()
    # with bucket views, DDP keeps no copy of the gradients
    return DistributedDataParallel(model, gradient_as_bucket_view=True) if several else model
