"""Tiny towers and generated pairs, for fast training steps without data."""

from collections.abc import Callable, Iterator

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from clipx import distributed
from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.models import temperature
from clipx.models.clip import ClipModel
from clipx.models.heads import SinglePointHead
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Inputs, Progress

SIDE, LENGTH, WORDS, E = 6, 4, 20, 12  # pixels, tokens, vocabulary, embedding width
SAMPLES = 40
INPUTS = Inputs(SIDE, (0.5,) * 3, (0.5,) * 3, "bicubic", "shortest", "none", LENGTH)


def plain() -> nn.Module:
    """[b, 3, H, W] -> [b, E], without batch statistics."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 16), nn.Tanh(), nn.Linear(16, E))


class ResNet(nn.Module):
    """Two convolutions with batch norm and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        norm = BatchNormAct2d(8, act_layer=nn.ReLU)  # timm's norm, which contains the activation
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, E)

    def forward(self, image: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, E]."""
        x = self.stem(image)
        pooled: Tensor = self.head(torch.relu(x + self.block(x)).mean((2, 3)))
        return pooled


def dropout() -> nn.Module:
    """As `plain`, with dropout of half the features."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, E))


class Words(nn.Module):
    """Mean word embedding: [b, L] -> [b, E]."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.projection = nn.Linear(16, E)

    def forward(self, text: Tensor) -> Tensor:
        """[b, L] -> [b, E]."""
        projected: Tensor = self.projection(self.words(text).mean(1))
        return projected


TOWERS = {"plain": plain, "resnet": ResNet, "dropout": dropout}


def settings(objective: dict[str, dict[str, object]], batch_size: int = 8) -> RunConfig:
    """Return settings of a run with tiny towers; the tower names are placeholders."""
    name = ModelConfig(image=ImageTowerConfig(name="tiny"), text=TextTowerConfig(name="tiny"))
    config = RunConfig(name="tiny", recipe="tiny", model=name, objective=objective)
    config.train = TrainConfig(epochs=1, batch_size=batch_size, device="cpu")
    config.schedule.kind, config.schedule.warmup_steps = "constant", 0
    config.optimizer.eps = 1e-3  # keeps rounding errors in gradients from becoming steps
    return config


def parts_of(config: RunConfig, tower: str = "plain") -> TrainComponents:
    """Return the components of a run on the CPU, with one of TOWERS for images."""

    def model_of(config: RunConfig) -> ClipModel:
        image, text = TOWERS[tower](), Words()
        tau = temperature.build_temperature(config.temperature)
        return ClipModel(image, text, tau, config.temperature.bias, INPUTS, SinglePointHead(config.model.normalise))

    return build_components(config, torch.device("cpu"), SAMPLES, "generated", model_of)


def batches(config: RunConfig, steps: int) -> Iterator[Batch]:
    """Yield this rank's part of the global batches, which do not depend on the number of ranks."""
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


def train(parts: TrainComponents, steps: int = 5) -> dict[str, Tensor]:
    """Train and return weights, buffers and sample table columns; columns on rank 0 only."""
    for step, batch in enumerate(batches(parts.config, steps)):
        train_step(parts, batch, Progress(step, steps, 0, 1))
    assert not parts.bad_steps
    return {k: v.clone() for k, v in parts.model.state_dict().items()} | parts.state.table.whole()


def about(name: str) -> Callable[[str], str]:
    """Return a `msg` for torch.testing that puts the name of the weight first."""
    return lambda message: f"{name}: {message}"
