"""`clipx check`: builds a run for real and does one step on generated pairs, then opens its data."""

import resource
import time

import torch

from clipx.config import RunConfig
from clipx.data import tokenizer
from clipx.data.sources import open_source
from clipx.device import choose
from clipx.errors import UserError
from clipx.parts import Parts, build
from clipx.step import train_step
from clipx.types import Batch, Progress


def check(config: RunConfig) -> None:
    """Prints parameters, time and memory of a step, and whether tokenizer and data are there.

    Raises:
        UserError: the run cannot be built, or its tokenizer or data are missing.
    """
    device = choose(config.train.device)
    parts = build(config, device, num_samples=config.train.batch_size, data="generated")
    for tower, module in (("image", parts.model.image), ("text", parts.model.text)):
        count = sum(p.numel() for p in module.parameters())
        print(f"{tower} tower   {count / 1e6:.2f} M parameters, {getattr(config.model, tower).name}")
    loss, seconds = _step(parts)
    print(f"step          loss {loss:.4f} on {config.train.batch_size} generated pairs, {seconds:.2f} s on {device}")
    print(f"memory        {_peak(device) / 2**20:.0f} MB at most")
    missing = {}
    try:
        tokenizer.build(parts.model.inputs)
        print(f"tokenizer     {parts.model.inputs.tokenizer}, {parts.model.inputs.context_length} tokens")
    except UserError as error:
        missing["tokenizer"] = error
    try:
        print(f"data          {len(open_source(config.data))} pairs, {config.data.name}")
    except UserError as error:
        missing["data"] = error
    if missing:
        reasons = "; ".join(str(error) for error in missing.values())
        raise UserError(f"everything but the {' and the '.join(missing)} is fine: {reasons}")


def _step(parts: Parts) -> tuple[float, float]:
    size, inputs = parts.config.train.batch_size, parts.model.inputs
    batch = Batch(
        sample_id=torch.arange(size, device=parts.device),
        image=torch.randn(size, 3, inputs.image_size, inputs.image_size, device=parts.device),
        text=torch.randint(1, 1000, (size, inputs.context_length), device=parts.device),
        label=torch.zeros(size, dtype=torch.int64, device=parts.device),
    )
    start = time.perf_counter()
    row = train_step(parts, batch, Progress(step=0, total_steps=1, epoch=0, total_epochs=1))
    return float(row["loss"]), time.perf_counter() - start


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
