"""Trial steps on generated pairs, for `clipx check` and `clipx bench`."""

import time
from collections.abc import Callable
from functools import partial
from math import ceil

import torch

from clipx.config.presets import num_pairs
from clipx.config.schema import RunConfig
from clipx.models.clip import build_model
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Progress

UNKNOWN_SIZE = 1_000_000  # assumed number of pairs if it is unknown before the data are read


def generated_batch(components: TrainComponents) -> Batch:
    """Return random images and texts with distinct random sample ids, without keyword labels.

    There are train.batch_size pairs; pairs 0 and 1 form a group, pairs 2 and 3 the next. Texts have the full length,
    because padding tokens cost as much as others.
    """
    size, device = components.config.train.batch_size, components.device
    inputs, stride = components.state.model.inputs, components.state.table.num_samples // size
    shape = (size, inputs.context_length)
    needs_negatives = "negative_text" in components.state.objective.needs
    negatives = torch.randint(1, 100, shape, device=device) if needs_negatives else None
    return Batch(
        sample_id=stride * torch.arange(size, device=device) + torch.randint(stride, (size,), device=device),
        image=torch.randn(size, 3, inputs.image_size, inputs.image_size, device=device),
        text=torch.randint(1, 100, shape, device=device),  # all vocabularies are larger
        label=torch.zeros(size, dtype=torch.int64, device=device),
        group=torch.arange(size, device=device) // 2,
        negative_text=negatives,
    )


def timed_step(components: TrainComponents, progress: Progress) -> tuple[float, float]:
    """Do a training step on new pairs; return its loss and its wall-clock seconds, until the device has finished."""
    batch, on_gpu = generated_batch(components), components.device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(components.device)  # wait until the batch is complete
    start = time.perf_counter()
    loss = train_step(components, batch, progress)["loss"]
    if on_gpu:
        torch.cuda.synchronize(components.device)
    return float(loss), time.perf_counter() - start


def timed_steps(config: RunConfig, device: torch.device) -> Callable[[], float]:
    """Build a run with random weights; return a function that does a step on new pairs and returns its seconds.

    All are steps from the middle of training, because objectives may do less in the first epochs (NUCLR freezes zeta).
    """
    pairs = max(num_pairs(config) or UNKNOWN_SIZE, config.train.batch_size)
    components = build_components(config, device, pairs, "generated", partial(build_model, pretrained=False))
    epochs = config.train.epochs or ceil((config.train.samples or pairs) / pairs)
    steps = epochs * (pairs // config.train.batch_size)
    middle = Progress(steps // 2, steps, epochs // 2, epochs)
    return lambda: timed_step(components, middle)[1]
