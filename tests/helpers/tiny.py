"""Tiny towers and random pairs: training steps take milliseconds, and need no files."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from clipx import distributed, objectives
from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.models import temperature
from clipx.models.clip import ClipModel
from clipx.models.heads import SinglePointHead
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.training.teacher import Teacher
from clipx.types import Batch, Inputs, Progress

SIDE, LENGTH, WORDS, E = 6, 4, 20, 12  # image side in pixels, tokens of a text, vocabulary size, embedding width
SAMPLES = 40  # n
MOVED = ("image", "text", "negative_text")  # fields of a batch that the loader copies to the device
INPUTS = Inputs(SIDE, (0.5,) * 3, (0.5,) * 3, "bicubic", "shortest", "none", LENGTH)


def plain(*more: nn.Module) -> nn.Module:
    """Return an image tower [b, 3, SIDE, SIDE] -> [b, E] without batch norms; `more`: layers before the last one."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 16), nn.Tanh(), *more, nn.Linear(16, E))


class ResNet(nn.Module):
    """Image tower of two convolutions with batch norm and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        norm = BatchNormAct2d(8, act_layer=nn.ReLU)  # timm's norm, which contains the activation
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, E)

    def forward(self, image: Tensor) -> Tensor:
        """Embed images [b, 3, SIDE, SIDE] to [b, E]."""
        x = self.stem(image)
        pooled: Tensor = self.head(torch.relu(x + self.block(x)).mean((2, 3)))
        return pooled


class Words(nn.Module):
    """Text tower: projection of the mean word embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.projection = nn.Linear(16, E)

    def forward(self, text: Tensor) -> Tensor:
        """Embed texts, int64 [b, LENGTH], to [b, E]."""
        projected: Tensor = self.projection(self.words(text).mean(1))
        return projected


TOWERS: dict[str, Callable[[], nn.Module]] = {
    "plain": plain,
    "resnet": ResNet,
    "dropout": lambda: plain(nn.Dropout(0.5)),
}


def settings(objective: dict[str, dict[str, object]], batch_size: int = 8) -> RunConfig:
    """Return the settings of a run for `components`. The tower names are placeholders."""
    model = ModelConfig(image=ImageTowerConfig(name="tiny"), text=TextTowerConfig(name="tiny"))
    config = RunConfig(name="tiny", recipe="tiny", model=model, objective=objective)
    config.train = TrainConfig(epochs=1, batch_size=batch_size, device="cpu")
    config.schedule.kind, config.schedule.warmup_steps = "constant", 0
    config.optimizer.eps = 1e-3  # large, because AdamW would turn rounding errors of tiny gradients into full steps
    return config


def components(config: RunConfig, tower: str = "plain", device: str = "cpu") -> TrainComponents:
    """Build a run whose image tower is one of TOWERS."""

    def build_model(config: RunConfig) -> ClipModel:
        image, text = TOWERS[tower](), Words()
        tau = temperature.build_temperature(config.temperature)
        return ClipModel(image, text, tau, config.temperature.bias, INPUTS, SinglePointHead(config.model.normalise))

    return build_components(config, torch.device(device), SAMPLES, "generated", build_model, teacher)


def teacher(config: RunConfig, student: Inputs, device: torch.device) -> Teacher:
    """Return a teacher that projects at random to 5 dimensions, or to E if the term needs a teacher of equal width."""
    generator, width = torch.Generator().manual_seed(3), E if "feature_distill" in config.objective else 5
    pixels, words = (torch.randn(size, width, generator=generator).to(device) for size in (3 * SIDE**2, WORDS))
    return Teacher(
        lambda image: F.normalize(image.flatten(1) @ pixels, dim=1),
        lambda text: F.normalize(words[text].mean(1), dim=1),
        torch.tensor(4.0, device=device),
    )


def batches(config: RunConfig, steps: int) -> Iterator[Batch]:
    """Yield this rank's part of each global batch. The global batches do not depend on the number of ranks."""
    size, world, rank = config.train.batch_size, distributed.world_size(), distributed.rank()
    generator = torch.Generator().manual_seed(1)
    own = slice(rank * size // world, (rank + 1) * size // world)
    for _ in range(steps):
        batch = Batch(
            sample_id=torch.randperm(SAMPLES, generator=generator)[:size][own],
            image=torch.randn(size, 3, SIDE, SIDE, generator=generator)[own],
            text=torch.randint(WORDS, (size, LENGTH), generator=generator)[own],
            label=torch.randint(3, (size,), generator=generator)[own],
        )
        negative = (
            batch.text.flip(1).add(1) % WORDS if {"negclip", "counterfactual"} & config.objective.keys() else None
        )
        yield replace(batch, group=batch.label, negative_text=negative)


def on_device(batch: Batch, device: torch.device) -> Batch:
    """Copy images and texts of a batch to a device, as the loader does; ids, labels and groups stay."""
    moved = {name: value.to(device) for name, value in vars(batch).items() if name in MOVED and value is not None}
    return replace(batch, **moved)


def train_steps(run: TrainComponents, steps: int) -> dict[str, Tensor]:
    """Train for some steps; return the value of each term at each step, the first step first."""
    values: dict[str, Tensor] = {}
    for step, batch in enumerate(batches(run.config, steps)):
        numbers = train_step(run, on_device(batch, run.device), Progress(step, steps, 0, 1))
        values |= {f"{name} in step {step}": value for name, value in numbers["terms"].items()}
    assert not run.bad_steps
    return values


def state(run: TrainComponents) -> dict[str, Tensor]:
    """Return on rank 0 name -> weight or buffer, ema.NAME -> average, column -> values."""
    averaged = run.state.ema.module.state_dict() if run.state.ema is not None else {}
    weights = run.state.model.state_dict() | {f"ema.{name}": value for name, value in averaged.items()}
    return {name: value.clone() for name, value in weights.items()} | run.state.table.whole()


def train(run: TrainComponents, steps: int = 5) -> dict[str, Tensor]:
    """Train for `steps` steps; return `state`."""
    train_steps(run, steps)
    return state(run)


def about(name: str) -> Callable[[str], str]:
    """Return a `msg` for torch.testing.assert_close that puts `name` before the message."""
    return lambda message: f"{name}: {message}"


TERMS: dict[str, dict[str, object]] = {
    "keyword": {"weight": 2.0},
    "nuclr": {"eta": 0.3, "freeze_steps": 1},
    "fastclip_v2": {"tau0": 0.2, "eta": 0.001},  # at the default tau0, exp(D_ij / tau_i) amplifies rounding errors
    "glofnd": {"start_epoch": 0, "alpha": 0.3},
    "neuclip": {"prototypes": 12, "restart": 2, "updates": 2},
}
TERMS |= {name: {} for name in objectives.TERMS if name not in TERMS}
FIRST = "clip+siglip+nuclr"
_OTHERS = [name for name in TERMS if name not in FIRST.split("+")]
# each term is in one of these sums; a gradient of one term that is 5% too large is seen in the weights of its sum
SUMS = [FIRST, *("+".join(_OTHERS[k::3]) for k in range(3))]
OPTIMIZERS = {"adamw": 0.01, "sgd": 0.1}  # learning rates
Result = dict[str, Tensor]  # name -> weight, column or loss, as `train` returns


def settings_of(terms: str, mixing: str, kind: str) -> RunConfig:
    """Return the settings of a run with these terms (names joined by +), mixing and optimizer."""
    names = terms.split("+")
    needs = {need for name in names for need in objectives.TERMS[name].needs}
    config = settings({name: TERMS[name] for name in names})
    config.mixing.kind, config.mixing.probability = mixing, 0.0 if mixing == "none" else 0.7
    config.optimizer.kind, config.optimizer.lr = kind, OPTIMIZERS[kind]
    config.temperature.tau, config.train.ema = 0.2, 0.5
    config.temperature.bias = -2.0 if "bias" in needs else None
    config.model.teacher = "tiny" if "teacher" in needs else None
    return config


def assert_same(found: Result, expected: Result, moved_from: Result) -> None:
    """Compare up to float32 rounding, and check that the weights have moved."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=2e-6, msg=about(name))
        if name in moved_from and name != "temperature.nu":
            assert (value - moved_from[name]).abs().max() > 1e-4, f"{name} has hardly been trained"
