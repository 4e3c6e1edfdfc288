"""Training: `fit` is the whole story of a run, `train_step` that of a step."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from clipx import distributed, environment, mixing, objectives, optim, probe, runs, schedule, temperature
from clipx.config import RunConfig
from clipx.data import tokenizer
from clipx.data.sampler import Sampler
from clipx.data.sources import open_source
from clipx.data.stream_loader import notes as source_notes
from clipx.data.stream_loader import open_loader
from clipx.device import autocast, choose
from clipx.log import RunLog
from clipx.meter import Meter
from clipx.models import clip
from clipx.objectives.base import Objective
from clipx.sample_table import SampleTable
from clipx.saving import Saver
from clipx.second_place import open_place
from clipx.state import RunState, checkpoints, resume
from clipx.stopping import Stop
from clipx.tables import lookup
from clipx.types import Batch, Embeddings, Progress


@dataclass
class Parts:
    """What a step needs."""

    config: RunConfig
    device: torch.device
    model: clip.ClipModel
    parallel: nn.Module  # the model, in DDP if there are several processes
    mix: mixing.Mixing
    objective: Objective
    learning_rate: Callable[[Progress], float]
    state: RunState
    bad_steps: int = 0  # the last ones, in a row, whose loss or gradient was not finite: skipped


def build(config: RunConfig, device: torch.device, num_samples: int, data: str) -> Parts:
    """Model, objective and optimizer from the settings, on the device.

    Raises:
        UserError: a setting is unknown or out of range, or weights are missing.
    """
    torch.manual_seed(config.seed)
    autocast(config.train.precision, device)  # names a wrong precision before the data are read
    objective = objectives.build(config.objective, num_samples)
    mix = mixing.build(config.mixing, config.seed)
    learning_rate = schedule.build(config.schedule, config.optimizer.lr)
    model = clip.build(config).to(device).to(memory_format=torch.channels_last)
    parallel = DistributedDataParallel(model) if distributed.world() > 1 else model
    home = lookup({"auto": device, "cpu": torch.device("cpu")}, config.train.table_device, "train.table_device")
    table = SampleTable(objective.columns, num_samples, home)
    state = RunState(model, optim.build(model, config), data, objective=objective, table=table)
    return Parts(config, device, model, parallel, mix, objective, learning_rate, state)


def fit(config: RunConfig, run: Path, started: float | None = None) -> bool:
    """Trains to the end, from the last good checkpoint of the run directory if there is one.

    A step whose loss or gradient is not finite is skipped; after train.max_bad_steps of them in a row the run ends
    as diverged: its last checkpoint stays, and outcome.json says so. SIGTERM, SIGUSR1 and train.max_minutes after
    `started` (time.monotonic(), by default now) end it early at the end of a step, which is saved.

    Returns:
        Whether the run is over; False where it ended early and goes on if it is called again.

    Raises:
        UserError: unusable settings, data or checkpoints, too many bad samples, no room for a checkpoint.
        Fault: no batch came for data.stall_seconds.
    """
    device = choose(config.train.device)
    with distributed.group(device):
        pairs = open_source(config.data)
        sampler = _sampler(config, len(pairs))
        parts = build(config, device, len(pairs), pairs.fingerprint)
        inputs, state, total = parts.model.inputs, parts.state, sampler.total_steps
        tokenize = tokenizer.build(inputs)
        loader = open_loader(config.data, pairs, sampler, inputs, tokenize)
        watch = probe.build(config, tokenize, parts.model)
        place = open_place(config, run)
        notes = [
            *temperature.notes(config.temperature, sampler.total_epochs),
            *source_notes(pairs, parts.objective.columns),
            *(place.restore() if place else []),
            *resume(state, run),
        ]
        with (
            Stop(config.train.max_minutes, started or time.monotonic()) as stop,
            RunLog(config, run, state.step, total) as log,
            Saver(config, run, place, log.say) as saver,
        ):
            for note in notes:
                log.say(note)
            if state.step == total and checkpoints(run):
                log.say(f"{run} is done: {total} steps")
                return True
            environment.write(run, device, state.step)
            if state.step == 0:
                log.record(0, watch(0, sampler.progress(0)))
                if total == 0:  # the untrained model is what is wanted
                    saver.save(state, {})
            meter = Meter()
            for batch, damage in meter.wait(loader.batches(state.step, device)):
                for sample in damage:
                    log.say(f"left out: {sample}")
                progress = sampler.progress(state.step)
                row = train_step(parts, batch, progress)
                state.step += 1
                if sampler.progress(state.step).epoch > progress.epoch:
                    parts.objective.end_epoch(state.table)
                meter.images += config.train.batch_size
                last, seen = state.step == total, watch(state.step, progress)
                if last or seen or parts.bad_steps or state.step % config.log.every == 0:
                    numbers = {**log_row(parts, row, progress), **meter.read(), "bad": loader.bad.bad}
                    log.step(state.step, {**numbers, **seen})
                if parts.bad_steps >= config.train.max_bad_steps:
                    log.say(runs.end_diverged(run, state.step, parts.bad_steps).text(run))
                    return True
                why = "" if last else stop.why()
                if last or why or (saver.due(state.step, seen.get("geometry", {})) and not parts.bad_steps):
                    saver.save(state, seen.get("geometry", {}))
                if why:
                    log.say(f"{why}: saved at step {state.step} of {total}; the same command goes on from it")
                    return False
    return True


def _sampler(config: RunConfig, num_samples: int) -> Sampler:
    rank, world = distributed.rank(), distributed.world()
    return Sampler(num_samples, config.train, config.seed, rank, world, config.data.held_out, config.data.block)


def train_step(parts: Parts, batch: Batch, progress: Progress) -> dict[str, Any]:
    """One update: towers, gather, objective in float32, backward, clip, AdamW, bounds of the temperature.

    Without a finite loss and gradient nothing is updated. Returns the step's numbers for the log.
    """
    config, optimizer = parts.config, parts.state.optimizer
    lr = parts.learning_rate(progress)
    optim.set_lr(optimizer, lr)
    parts.parallel.train()
    with autocast(config.train.precision, parts.device):
        image, text, scale, bias = parts.parallel(batch.image, batch.text, progress)
    embeddings = Embeddings(
        image=distributed.gather(image.float()),
        text=distributed.gather(text.float()),
        scale=scale.float(),
        sample_id=distributed.gather(batch.sample_id),
        label=distributed.gather(batch.label),
        bias=bias,
    )
    table = parts.state.table
    loss = parts.objective(parts.mix(embeddings, progress.step), table.read(embeddings.sample_id), progress)
    optimizer.zero_grad()
    loss.total.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(parts.model.parameters(), config.train.grad_clip or float("inf"))
    if torch.isfinite(loss.total) and torch.isfinite(norm):  # equal on all ranks, as loss and gradients are
        optimizer.step()
        parts.model.temperature.bound_()
        table.write(embeddings.sample_id, loss.rows)
        parts.objective.end_step(table)
        parts.bad_steps = 0
    else:
        parts.bad_steps += 1
    return {
        "loss": loss.total.detach(),
        "terms": loss.terms,
        "scale": scale.detach(),
        "lr": lr,
        "grad_norm": norm,
    }


def log_row(parts: Parts, row: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """A step's numbers as a line of log.jsonl; with per-sample columns, their quantiles."""
    scale = float(row["scale"])
    return {
        "epoch": progress.epoch,
        "samples": (progress.step + 1) * parts.config.train.batch_size,
        "loss": float(row["loss"]),
        "terms": {name: float(value) for name, value in row["terms"].items()},
        "scale": scale,
        "tau": 1 / scale,
        "lr": row["lr"],
        "grad_norm": float(row["grad_norm"]),
        **({"columns": parts.state.table.quantiles()} if parts.objective.columns else {}),
        **({"skipped": parts.bad_steps} if parts.bad_steps else {}),
    }
