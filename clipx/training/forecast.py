"""Before a run: forecast of its memory and time, also on GPUs that are not here, and trial steps on generated pairs.

With N GPUs in machines of G GPUs each, a step takes the sum of

    towers      FLOPs of a GPU / (peak of train.precision x TOWER_SHARE)
    objective   FLOPs of a GPU / (float32 peak x OBJECTIVE_SHARE)
    links       bytes through a GPU's link inside its machine / (bandwidth of the link x LINK_SHARE)
    network     bytes through a machine's network card / NETWORK, with several machines

DDP averages the gradients of p parameters in a ring of k members, each of which sends 2 (k - 1) / k x 4 p bytes:
k = min(N, G) GPUs for links, k = N / G machines for network. The objective gathers both embeddings and sums the
gradient of the texts: 3 x 4 B E (N - 1) / N bytes, with batch size B and embedding width E. The total assumes no
overlap, so the times of links and network are upper bounds.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import torch

from clipx.config.presets import check_batch_size, num_pairs
from clipx.config.schema import RunConfig
from clipx.data.sampler import Sampler
from clipx.errors import UserError, one_line
from clipx.models.clip import build_model
from clipx.training.cost import FLOAT32_BYTES, StepCost, count_step
from clipx.training.devices import DEVICES, Device
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Progress
from clipx.utils.registry import lookup

# Measured on one H200 (docs/scaling.md); `make bench-train` and `make bench-loss` measure yours:
TOWER_SHARE = 0.2  # share of the peak that the towers reach
OBJECTIVE_SHARE = 0.5  # share of the float32 peak that the objective reaches
# Assumed, not measured here:
LINK_SHARE = 2 / 3  # share of a link's bandwidth that an all-reduce reaches
NETWORK = 20e9  # bytes/s of an all-reduce between machines, per machine (network of 200 Gbit/s)
PER_MACHINE = 8  # G
USABLE = 0.93  # share of a GPU's memory that tensors can use; the rest: CUDA, libraries' workspaces, fragments
UNKNOWN_SIZE = 1_000_000  # assumed number of pairs if it is unknown before the data are read


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, by part."""

    towers: float
    objective: float
    links: float = 0.0
    network: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return self.towers + self.objective + self.links + self.network


@dataclass(frozen=True)
class Forecast:
    """Memory of one of `processes` GPUs, and the time of a step."""

    config: RunConfig
    processes: int
    device: Device
    cost: StepCost
    time: StepTime

    @property
    def usable(self) -> float:
        """Bytes of a GPU that tensors can use."""
        return USABLE * self.device.memory

    @property
    def fits(self) -> bool:
        """True if the tensors of a step fit into the memory."""
        return self.cost.peak <= self.usable

    @property
    def images_per_s(self) -> float:
        """Rate that the loaders of all GPUs must reach together."""
        return self.config.train.batch_size / self.time.total

    @property
    def steps(self) -> int | None:
        """Steps of the run; None if they are unknown before the data are read."""
        return total_steps(self.config, num_pairs(self.config))


def forecast(config: RunConfig, processes: int, name: str) -> Forecast:
    """Forecast a run on `processes` GPUs of the kind `name`, a key of DEVICES.

    Raises UserError: an unknown device, a batch that cannot be split, unknown towers, towers whose step cannot be
    counted, or unsupported settings.
    """
    device = lookup(DEVICES, name, "device")
    check_batch_size(config, processes)
    try:
        cost = count_step(config, processes, on_gpu=True)
    except RuntimeError as error:  # see `check_memory`
        raise UserError(f"device={name}: a step of these towers cannot be counted ({one_line(error)})") from error
    return Forecast(config, processes, device, cost, step_time(config, cost, processes, device))


def step_time(
    config: RunConfig, cost: StepCost, processes: int, device: Device, share: float = TOWER_SHARE
) -> StepTime:
    """Return the time of a step on `processes` GPUs from the cost on one of them; `share` replaces TOWER_SHARE."""
    towers = cost.tower_flops / (device.peak(config.train.precision) * share)
    objective = cost.objective_flops / (device.fp32 * OBJECTIVE_SHARE)
    inside, machines = min(processes, PER_MACHINE), ceil(processes / PER_MACHINE)
    gathered = 3 * config.train.batch_size * cost.width * FLOAT32_BYTES * (processes - 1) / processes

    def moved(members: int) -> float:
        return (members - 1) / members * FLOAT32_BYTES * 2 * cost.num_trainable + gathered

    links = moved(inside) / (device.link * LINK_SHARE) if processes > 1 else 0.0
    network = moved(machines) / NETWORK if machines > 1 else 0.0
    return StepTime(towers, objective, links, network)


def total_steps(config: RunConfig, pairs: int | None) -> int | None:
    """Return the number of steps of a run, or None if it depends on an unknown number of pairs."""
    if pairs is None and config.train.samples is None:
        return None
    # the number of pairs does not matter with train.samples
    num_samples, held_out = (config.train.batch_size, 0.0) if pairs is None else (pairs, config.data.held_out)
    return Sampler(num_samples, config.train, 0, 0, 1, held_out).total_steps


def changes_that_fit(found: Forecast, name: str) -> list[str]:
    """Return for each setting the first change that makes a step fit, if any, as text with memory and relative time."""
    lines = []
    for tried in _changes(found.config, found.processes):
        for change in tried:
            try:
                config = replace(found.config, train=replace(found.config.train, **change))
                new = forecast(config, found.processes, name)
            except UserError:  # a tower without checkpointing
                continue
            if new.fits:
                (key, value), seconds_per_pair = *change.items(), new.time.total / new.config.train.batch_size
                longer = seconds_per_pair * found.config.train.batch_size / found.time.total
                setting = f"train.{key}={str(value).lower()}"
                lines.append(f"{setting} ({new.cost.peak / 1e9:.1f} GB, {longer:.2f} times as long)")
                break
    return lines


def _changes(config: RunConfig, processes: int) -> Iterator[list[dict[str, Any]]]:
    """Yield for each setting the changes to try, in order."""
    pairs, accumulation = config.train.batch_size // processes, config.train.accumulation
    powers = [2**k for k in range(1, pairs.bit_length())]
    yield [{"accumulation": accumulation * k} for k in powers if pairs % (accumulation * k) == 0]
    if not config.train.grad_checkpointing:
        yield [{"grad_checkpointing": True}]
    yield [{"batch_size": config.train.batch_size // k} for k in powers if pairs % (accumulation * k) == 0]


def generated_batch(components: TrainComponents) -> Batch:
    """Return random images and texts with distinct random sample ids, without keyword labels.

    There are train.batch_size pairs; pairs 0 and 1 form a group, pairs 2 and 3 the next. Texts have the full length,
    because padding tokens cost as much as others.
    """
    size, device = components.config.train.batch_size, components.device
    model, stride = components.state.model, components.state.table.num_samples // size
    image, text = model.input_shapes()

    def texts() -> torch.Tensor:
        if "text" in model.frozen_towers:
            return torch.randn(size, *text, device=device)
        return torch.randint(1, 100, (size, *text), device=device)  # all vocabularies are larger

    return Batch(
        sample_id=stride * torch.arange(size) + torch.randint(stride, (size,)),  # ids, labels, groups: in CPU memory
        image=torch.randn(size, *image, device=device),
        text=texts(),
        label=torch.zeros(size, dtype=torch.int64),
        group=torch.arange(size) // 2,
        negative_text=texts() if "negative_text" in components.state.objective.needs else None,
    )


def timed_step(components: TrainComponents, progress: Progress) -> tuple[float, float]:
    """Do a training step on new pairs; return its loss and its wall-clock seconds, until the device has finished."""
    batch = generated_batch(components)
    components.timer.wait()  # until the batch is complete
    start = time.perf_counter()
    loss = train_step(components, batch, progress)["loss"]
    components.timer.wait()
    return float(loss), time.perf_counter() - start


def timed_steps(config: RunConfig, device: torch.device) -> Callable[[], float]:
    """Build a run with random weights; return a function that does a step on new pairs and returns its seconds.

    All are steps from the middle of training, because objectives may do less in the first epochs (NUCLR freezes zeta).
    """
    pairs = max(num_pairs(config) or UNKNOWN_SIZE, config.train.batch_size)
    components = build_components(config, device, pairs, "generated", partial(build_model, pretrained=False))
    sampler = Sampler(pairs, config.train, config.seed, 0, 1)
    middle = sampler.progress(sampler.total_steps // 2)
    return lambda: timed_step(components, middle)[1]
