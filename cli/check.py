"""`clipx check`: builds a run for real and does one step on generated pairs, then opens its data."""

import resource
import time
from dataclasses import replace

import torch

from cli.launcher.spawn import LESS_MEMORY, enough_memory
from clipx.config.schema import EvalConfig, RunConfig
from clipx.data.preprocess import tokenizer
from clipx.data.sources.opening import open_source
from clipx.errors import UserError
from clipx.training.setup import TrainComponents, build_components, check_split
from clipx.training.step import train_step
from clipx.types import Batch, Progress
from clipx.utils.device import choose_device
from evaluation.own_sets import check_evaluation


def check(config: RunConfig) -> None:
    """Prints parameters, time and memory of a step, and whether tokenizer, data and evaluation sets are there.

    Of several processes one is tried, on its share of the batch.

    Raises:
        UserError: the run cannot be built, or its tokenizer or data are missing.
    """
    device = choose_device(config.train.device)
    processes = config.train.processes * config.launch.nodes
    check_split(config, processes)
    share = replace(config, train=replace(config.train, batch_size=config.train.batch_size // processes))
    parts = build_components(share, device, num_samples=share.train.batch_size, data="generated")
    for tower, module in (("image", parts.model.image), ("text", parts.model.text)):
        count = sum(p.numel() for p in module.parameters())
        print(f"{tower} tower   {count / 1e6:.2f} M parameters, {getattr(config.model, tower).name}")
    pairs = share.train.batch_size
    with enough_memory(f"train.batch_size={config.train.batch_size}, {pairs} pairs a GPU,", LESS_MEMORY):
        loss, seconds = _step(parts)
    of = f", the share of one of {processes} processes" if processes > 1 else ""
    print(f"step          loss {loss:.4f} on {pairs} generated pairs{of}, {seconds:.2f} s on {device}")
    print(f"memory        {_peak(device) / 2**20:.0f} MB at most")
    missing = {}
    try:
        tokenizer.build_tokenizer(parts.model.inputs)
        print(f"tokenizer     {parts.model.inputs.tokenizer}, {parts.model.inputs.context_length} tokens")
    except UserError as error:
        missing["tokenizer"] = error
    try:
        print(f"data          {len(open_source(config.data))} pairs, {config.data.name}")
    except UserError as error:
        missing["data"] = error
    if config.data.evaluation:
        try:
            check_evaluation(config, EvalConfig())
            print(f"evaluation    {len(config.data.evaluation)} sets, all there")
        except UserError as error:
            missing["evaluation sets"] = error
    if missing:
        reasons = "; ".join(str(error) for error in missing.values())
        raise UserError(f"{' and '.join(missing)} missing, all else is fine: {reasons}")


def _step(parts: TrainComponents) -> tuple[float, float]:
    size, inputs = parts.config.train.batch_size, parts.model.inputs
    batch = Batch(
        sample_id=torch.arange(size, device=parts.device),
        image=torch.randn(size, 3, inputs.image_size, inputs.image_size, device=parts.device),
        text=torch.randint(1, 1000, (size, inputs.context_length), device=parts.device),
        label=torch.zeros(size, dtype=torch.int64, device=parts.device),
    )
    loss = float(train_step(parts, batch, Progress(0, 2, 0, 1))["loss"])  # waits for the device, and warms it up
    start = time.perf_counter()
    float(train_step(parts, batch, Progress(1, 2, 0, 1))["loss"])
    return loss, time.perf_counter() - start


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
