"""Training: `fit` is the whole story of a run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.data.loading.bad_samples import BadSampleFile
from clipx.data.loading.loader import BatchLoader, open_loader, source_notes
from clipx.data.preprocess import tokenizer
from clipx.data.sampler import Sampler
from clipx.data.sources.base import PairSource
from clipx.data.sources.opening import open_source
from clipx.data.sources.streams import Stream
from clipx.errors import UserError
from clipx.models import temperature
from clipx.models.clip import ClipModel
from clipx.run import directory, environment
from clipx.run.checkpoint import checkpoints, resume
from clipx.run.checkpoint_manager import CheckpointManager
from clipx.run.log import RunLog
from clipx.run.remote import RemoteCheckpointStore, open_remote_store
from clipx.training import geometry_probe
from clipx.training import initial_weights as start
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import count_memory, log_row, train_step
from clipx.training.stop_signals import Stop
from clipx.training.timing import ThroughputMeter
from clipx.utils.device import choose_device

Evaluate = Callable[[ClipModel], dict[str, float]]  # what it returns on rank 0 is logged


def fit(config: RunConfig, run: Path, started: float | None = None, evaluate: Evaluate | None = None) -> bool:
    """Trains from the last good checkpoint, if there is one, to the end (True) or to an early one (False).

    A step whose loss or gradient is not finite is skipped; after train.max_bad_steps of them in a row the run ends as
    diverged: its last checkpoint stays, and outcome.json says so. Ctrl-C, SIGTERM, SIGUSR1 and train.max_minutes after
    `started` (time.monotonic(), by default now) end it early at the end of a step, which is saved: the same call goes
    on. `evaluate` gives the numbers of log.evaluate_every, after what there is to save is saved; all ranks call it.

    Raises:
        UserError: unusable settings, data or checkpoints, too many bad samples, no room for a checkpoint.
        Fault: no batch came for data.stall_seconds.
    """
    _check(config, evaluate)
    patience = max(1800.0, 2 * config.data.stall_seconds)
    device = choose_device(config.train.device)
    with distributed.group(device, patience), Stop(config.train.max_minutes, started or time.monotonic()) as stop:
        job = _prepare(config, run, device)
        parts, sampler, state, total = job.parts, job.sampler, job.parts.state, job.sampler.total_steps
        with (
            RunLog(config, run, state.step, total) as log,
            CheckpointManager(config, run, job.place, log.info, state.step) as saver,
        ):
            for note in job.notes:
                log.info(note)
            score = partial(_score, config, evaluate, parts, total, log)
            score()  # the step that is resumed from, if the run was ended between its checkpoint and this
            if over := _why_over(run, state.step, total):
                log.info(over)
                return True
            environment.write(run, device, state.step, job.start)
            if state.step == 0:
                log.record(0, job.watch(0, sampler.progress(0)))
            if total == 0:  # the untrained model is what is wanted
                saver.save(state, {})
            meter, unreported = ThroughputMeter(parts.laps), list[str]()
            for batch, damage in meter.wait(saver.copying(job.loader.batches(state.step, device))):
                unreported += damage
                progress = sampler.progress(state.step)
                row = train_step(parts, batch, progress)
                state.step += 1
                if sampler.progress(state.step).epoch > progress.epoch:
                    parts.objective.end_epoch(state.table)
                meter.images += config.train.batch_size
                last = state.step == total
                with meter.paused():
                    probed = job.watch(state.step, progress)
                if last or parts.bad_steps or _is_logged(config, state.step):
                    bad_total, unreported = _say_damage(log, job, unreported), []
                    log.step(state.step, {**log_row(parts, row, progress), **meter.read(), "bad": bad_total, **probed})
                if parts.bad_steps >= config.train.max_bad_steps:
                    log.info(directory.end_diverged(run, state.step, parts.bad_steps).text(run))
                    return True
                stop_reason = "" if last else stop.why()
                if last or stop_reason or (saver.due(state.step, probed.get("geometry", {})) and not parts.bad_steps):
                    saver.save(state, probed.get("geometry", {}))
                if stop_reason:
                    _say_damage(log, job, unreported)
                    log.info(f"{stop_reason}: saved at step {state.step} of {total}; the same command goes on from it")
                    return False
                with meter.paused():
                    score()
    return True


@dataclass
class _Job:
    """What is made before the first step."""

    sampler: Sampler
    parts: TrainComponents
    loader: BatchLoader
    watch: geometry_probe.Watch
    damage: BadSampleFile
    place: RemoteCheckpointStore | None
    notes: list[str]  # what a person should read first
    start: dict[str, Any]  # of the weights that the run starts with, for environment.json


def _check(config: RunConfig, evaluate: Evaluate | None) -> None:
    every = config.log.evaluate_every
    if every and evaluate is None:
        raise UserError(f"log.evaluate_every={every} needs fit(..., evaluate=...); `clipx train` gives it")
    geometry_probe.check(config)


def _prepare(config: RunConfig, run: Path, device: torch.device) -> _Job:
    """Opens the data, builds the model, and loads the last good checkpoint."""
    count_memory(device)
    pairs = open_source(config.data)
    sampler = _sampler(config, pairs)
    place = open_remote_store(config, run)
    restored = place.restore() if place else []
    goes_on = distributed.broadcast_object(bool(checkpoints(run)))  # then other weights would only be overwritten
    parts = build_components(config, device, len(pairs), pairs.fingerprint, partial(start.model, goes_on=goes_on))
    tokenize = tokenizer.build_tokenizer(parts.model.inputs)
    return _Job(
        sampler=sampler,
        parts=parts,
        loader=open_loader(config.data, pairs, sampler, parts.model.inputs, tokenize),
        watch=geometry_probe.build_probe(config, tokenize, parts.model),
        damage=BadSampleFile(run),
        place=place,
        notes=[*_notes(config, sampler, pairs, parts), *restored, *resume(parts.state, run)],
        start={} if goes_on else start.facts(config),
    )


def _why_over(run: Path, step: int, total: int) -> str:
    """In words; empty where something is left to do."""
    if diverged := distributed.broadcast_object(directory.diverged(run)):  # and came back from train.copy_to
        return diverged.text(run)
    return f"{run} is done: {total} steps" if step == total and checkpoints(run) else ""


def _score(config: RunConfig, evaluate: Evaluate | None, parts: TrainComponents, total: int, log: RunLog) -> None:
    """Logs the accuracy where log.evaluate_every asks for it now, and the log does not have it."""
    every, step = config.log.evaluate_every, parts.state.step
    due = bool(every and step) and (step == total or step % every == 0)
    if evaluate and due and not log.has_evaluation(step):
        log.evaluation(step, evaluate(parts.model))


def _is_logged(config: RunConfig, step: int) -> bool:
    """Whether a line of the log belongs to this step; the same on all ranks, though only rank 0 measures geometry."""
    log = config.log
    return any(every and step % every == 0 for every in (log.every, log.geometry_every))


def _say_damage(log: RunLog, job: _Job, unreported: list[str]) -> int:
    """Names what the ranks have left out since the last line of the log; returns how many, since the run was started.

    `unreported` is of this rank.
    """
    found = distributed.gather_objects((job.loader.bad.bad, unreported))
    if distributed.rank() == 0:
        for line in job.damage.add([sample for _, damage in found for sample in damage]):
            log.info(line)
    return sum(count for count, _ in found)


def _notes(config: RunConfig, sampler: Sampler, pairs: PairSource | Stream, parts: TrainComponents) -> list[str]:
    """What the settings imply that a person may not expect."""
    objective, epochs = parts.objective, sampler.total_epochs
    of_temperature = temperature.notes(config.temperature, epochs, objective.learns_temperature)
    return [*of_temperature, *objective.notes(epochs), *source_notes(pairs, objective.columns)]


def _sampler(config: RunConfig, pairs: PairSource | Stream) -> Sampler:
    rank, world, held_out = distributed.rank(), distributed.world_size(), config.data.held_out
    image_of = pairs.image_of() if held_out and not pairs.streaming else None
    return Sampler(len(pairs), config.train, config.seed, rank, world, held_out, config.data.block, image_of)
