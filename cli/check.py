"""`clipx check`: estimate the memory of a step, do a trial step on generated pairs, try the tokenizer and the data.

With device= and processes=: calculate memory and time of a run on GPUs of other machines.
"""

import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path

import torch

from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig
from clipx.data.loading.loader import open_loader
from clipx.data.preprocess import tokenizer
from clipx.data.sources.opening import open_source
from clipx.errors import UserError
from clipx.run.saving import CheckpointManager
from clipx.train import build_sampler
from clipx.training.cost import check_memory
from clipx.training.forecast import (
    PER_MACHINE,
    USABLE,
    Forecast,
    changes_that_fit,
    forecast,
    generated_batch,
    timed_step,
)
from clipx.training.loader_rate import LoaderRate, loader_rate, stored_size
from clipx.training.setup import TrainComponents, build_components
from clipx.types import Progress
from clipx.utils.device import TRAIN_MEMORY_HINT, choose_device, explain_out_of_memory
from clipx.utils.terminal import duration
from evaluation.during_training import check_evaluation

TRIED = 16  # number of training samples to decode


def check(config: RunConfig) -> None:
    """Print parameter counts, time and memory of a step; try tokenizer, data and evaluation sets.

    With several processes, do the step of one process, on its share of the batch.

    Raises UserError: a step needs more memory than is free, its loss is not finite, or a file is missing. If the run is
    on the CPU, the memory is checked before the model is built.
    """
    CheckpointManager(config, Path())  # refuses wrong values of train.keep_best
    device = choose_device(config.train.device)
    processes = config.train.processes * config.launch.nodes
    print(f"memory        {check_memory(config, device)}", flush=True)
    pairs = config.train.batch_size // processes
    share = replace(config, train=replace(config.train, batch_size=pairs))
    components = build_components(share, device, num_samples=pairs, data_fingerprint="generated")
    model = components.state.model
    for key, module, tower in (("image", model.image, config.model.image), ("text", model.text, config.model.text)):
        count = sum(p.numel() for p in module.parameters())
        trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
        part = f", {trained / 1e6:.2f} M trained" if trained < count else ""
        stored = config.data.features and tower.frozen
        name = f"{key} {'head' if stored else 'tower'}"
        print(f"{name:14s}{count / 1e6:.2f} M parameters{part}, {'on features of ' * stored}{tower.name}")
    with explain_out_of_memory(
        f"train.batch_size={config.train.batch_size}, {pairs} pairs per GPU,", TRAIN_MEMORY_HINT
    ):
        accumulation = share.train.accumulation
        if pairs == _width(components) and pairs > 2 * accumulation:  # square: a forgotten .T would give no error
            pairs -= 2 * accumulation
            components.config = replace(share, train=replace(share.train, batch_size=pairs))
        # two steps, because the first step is slower
        loss, _ = timed_step(components, Progress(0, 2, 0, 1))
        _, seconds = timed_step(components, Progress(1, 2, 0, 1))
    if not math.isfinite(loss):
        raise UserError(f"objective: the loss of a step on {pairs} generated pairs is {loss}")
    which = f", the share of one of {processes} processes" if processes > 1 else ""
    print(f"step          loss {loss:.4f} on {pairs} generated pairs{which}, {seconds:.2f} s on {device}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    print(f"peak          {peak / 2**20:.0f} MiB in these steps")
    _check_data(config, components)


@torch.no_grad()
def _width(components: TrainComponents) -> int:
    """Return E, the width of the embeddings in training."""
    batch = generated_batch(components)
    image, *_ = components.state.model(batch.image[:2], batch.text[:2], Progress(0, 2, 0, 1))
    return int(image.shape[1])


def _check_data(config: RunConfig, components: TrainComponents) -> None:
    """Print tokenizer, data and evaluation sets; raise UserError with the names of all missing ones."""
    missing: dict[str, str] = {}

    @contextmanager
    def record_missing(name: str) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            missing[name] = str(error)

    inputs = components.state.model.inputs
    with record_missing("tokenizer"):
        tokenizer.build_tokenizer(inputs)
        print(f"tokenizer     {inputs.tokenizer}, {inputs.context_length} tokens")
    with record_missing("data"):
        print(f"data          {_read_some(config, components)}, {config.data.name}")
    if config.data.evaluation:
        with record_missing("evaluation sets"):
            check_evaluation(config, EvalConfig())
            print(f"evaluation    {len(config.data.evaluation)} found")
    if missing:
        raise UserError(
            f"cannot use {' and '.join(missing)}: {'; '.join(dict.fromkeys(missing.values()))}; all else is fine"
        )


def _read_some(config: RunConfig, components: TrainComponents) -> str:
    """Decode a few random training samples; return the number of pairs and the bad samples found, in words.

    Raises UserError: the data cannot be opened or have fewer pairs than a batch, or all samples tried are bad.
    """
    pairs = open_source(config.data)
    inputs = components.state.model.inputs
    sampler = build_sampler(config, pairs)  # refuses a batch that is larger than the data
    few = replace(config.train, batch_size=min(TRIED, sampler.num_train), epochs=1, samples=None)
    data, tokenize = replace(config.data, workers=0), tokenizer.build_tokenizer(inputs)
    sampler = replace(sampler, train=few, block=0)
    loader = open_loader(data, pairs, sampler, inputs, tokenize, components.state.objective.needs)
    # Not before open_loader, which refuses some values; with memory, the first batch would wait for the whole data set.
    data.cache = "none"
    _, bad = next(loader.batches(0, torch.device("cpu")))
    found = f"{len(pairs)} pairs, {few.batch_size} decoded"
    if pairs.problems:
        found += f", {len(pairs.problems)} problems ({'; '.join(pairs.problems[:3])})"
    return f"{found}, of which {len(bad)} are bad ({'; '.join(bad[:3])})" if bad else found


def print_forecast(config: RunConfig, processes: int, name: str) -> None:
    """Print the memory of each GPU, the time of a step, the rate of the data loaders and the cost of the run.

    Raises UserError: as `forecast` does, or if a step does not fit. The message then names changes that fit, if any.
    """
    found = forecast(config, processes, name)
    machines = f" in {ceil(processes / PER_MACHINE)} machines of {PER_MACHINE}" if processes > PER_MACHINE else ""
    print(f"forecast      {processes} x {name}{machines}; calculated, see docs/scaling.md")
    for part, size in sorted(found.cost.memory.items(), key=lambda item: -item[1]):
        if size:
            print(f"  {part:<12}{size / 1e9:9.2f} GB")
    print(
        f"memory        {found.cost.peak / 1e9:.2f} GB of each GPU; usable: {found.usable / 1e9:.1f} GB, {USABLE:.0%}"
    )
    shown = ", ".join(f"{part} {seconds * 1e3:.3g}" for part, seconds in vars(found.time).items() if seconds)
    print(f"step          {found.time.total * 1e3:.4g} ms: {shown}")
    rate = found.images_per_s
    print(f"loader        {rate:,.0f} images/s, {rate / processes:,.0f} for each GPU")
    print(f"run           {_run_cost(found, found.time.total)}")
    if (loaders := loader_rate(config)) is not None:
        _print_loaders(found, loaders)
    if not found.fits:
        changes = ", ".join(changes_that_fit(found, name))
        advice = f"a step fits with one of: {changes}" if changes else "no smaller batch fits: use smaller towers"
        raise UserError(
            f"train.batch_size={config.train.batch_size} on {processes} x {name} needs {found.cost.peak / 1e9:.1f} GB "
            f"of each GPU, of {found.usable / 1e9:.1f} usable; {advice}"
        )


def _print_loaders(found: Forecast, rate: LoaderRate) -> None:
    """Print how many cores each GPU needs to prepare its images, and the cost of the run with fewer of them."""
    data, enough = found.config.data, ceil(found.images_per_s / found.processes / rate.of_core)
    size = "{} x {}".format(*stored_size(found.config))
    print(
        f"decoding      {rate.of_core:,.0f} images/s on a core of this machine ({size} pixels, data.decode="
        f"{data.decode}, data.augment={data.augment}): {enough} core{'s' * (enough > 1)} for each GPU"
    )
    seconds = rate.step(found.processes, found.time.total)
    if seconds > found.time.total:
        print(
            f"loaders       slower than the GPUs (cores for each: {rate.cores}): {_run_cost(found, seconds)}; use "
            f"{rate.changes}"
        )


def _run_cost(found: Forecast, seconds: float) -> str:
    if found.steps is None:
        return "length unknown before the data are read; train.samples=N train.epochs=null sets it"
    took = found.steps * seconds
    return f"{found.steps:,} steps, {duration(took)}, {found.processes * took / 3600:,.1f} GPU-hours without evaluation"
