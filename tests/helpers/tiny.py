"""Towers of a few hundred weights and generated pairs: training steps without data and without waiting."""

from collections.abc import Callable, Iterator

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from clipx import distributed
from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.models import temperature
from clipx.models.clip import ClipModel
from clipx.models.heads import OnePoint
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Inputs, Progress

SIDE, LENGTH, WORDS, E = 6, 4, 20, 12  # pixels, tokens, vocabulary, embedding width
SAMPLES = 40
INPUTS = Inputs(SIDE, (0.5,) * 3, (0.5,) * 3, "bicubic", "shortest", "none", LENGTH)


def plain() -> nn.Module:
    """[b, 3, H, W] -> [b, E], each image by itself."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 16), nn.Tanh(), nn.Linear(16, E))


class ResNet(nn.Module):
    """Two convolutions with batch statistics around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        norm = BatchNormAct2d(8, act_layer=nn.ReLU)  # timm's, which holds the activation
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, E)

    def forward(self, image: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, E]."""
        x = self.stem(image)
        pooled: Tensor = self.head(torch.relu(x + self.block(x)).mean((2, 3)))
        return pooled


def dropout() -> nn.Module:
    """As `plain`, a half of its features left out at random."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, E))


class Words(nn.Module):
    """[b, L] -> [b, E]."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.projection = nn.Linear(16, E)

    def forward(self, text: Tensor) -> Tensor:
        """The mean word."""
        projected: Tensor = self.projection(self.words(text).mean(1))
        return projected


TOWERS = {"plain": plain, "resnet": ResNet, "dropout": dropout}


def settings(objective: dict[str, dict[str, object]], batch_size: int = 8) -> RunConfig:
    """A run of the tiny towers; all tower settings are names only."""
    name = ModelConfig(image=ImageTowerConfig(name="tiny"), text=TextTowerConfig(name="tiny"))
    config = RunConfig(name="tiny", recipe="tiny", model=name, objective=objective)
    config.train = TrainConfig(epochs=1, batch_size=batch_size, device="cpu")
    config.schedule.kind, config.schedule.warmup_steps = "constant", 0
    config.optimizer.eps = 1e-3  # gradients that are rounding do not become steps
    return config


def components(config: RunConfig, tower: str = "plain") -> TrainComponents:
    """Return a run on the CPU, with one of TOWERS for images."""

    def build_model(config: RunConfig) -> ClipModel:
        image, text = TOWERS[tower](), Words()
        tau = temperature.build_temperature(config.temperature)
        return ClipModel(image, text, tau, config.temperature.bias, INPUTS, OnePoint(config.model.normalise))

    return build_components(config, torch.device("cpu"), SAMPLES, "generated", build_model)


def batches(config: RunConfig, steps: int) -> Iterator[Batch]:
    """This rank's rows of the same global batches for any number of ranks."""
    size, world, rank = config.train.batch_size, distributed.world_size(), distributed.rank()
    generator = torch.Generator().manual_seed(1)
    own = slice(rank * size // world, (rank + 1) * size // world)
    for _ in range(steps):
        yield Batch(
            sample_id=torch.randperm(SAMPLES, generator=generator)[:size][own],
            image=torch.randn(size, 3, SIDE, SIDE, generator=generator)[own],
            text=torch.randint(WORDS, (size, LENGTH), generator=generator)[own],
            label=torch.randint(3, (size,), generator=generator)[own],
        )


def train(run: TrainComponents, steps: int = 5) -> dict[str, Tensor]:
    """Train some steps; return weights, buffers, their averages (named ema.*) and, on rank 0, columns."""
    for step, batch in enumerate(batches(run.config, steps)):
        train_step(run, batch, Progress(step, steps, 0, 1))
    assert not run.bad_steps
    averaged = run.state.ema.module.state_dict() if run.state.ema is not None else {}
    weights = run.state.model.state_dict() | {f"ema.{name}": value for name, value in averaged.items()}
    return {name: value.clone() for name, value in weights.items()} | run.state.table.whole()


def about(name: str) -> Callable[[str], str]:
    """For torch.testing: its message with the name of the weight in front."""
    return lambda message: f"{name}: {message}"
