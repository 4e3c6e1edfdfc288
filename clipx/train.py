"""The training loop: `fit` trains a run from its first step, or its last checkpoint, to the end."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clipx import distributed
from clipx.config.presets import trained_part
from clipx.config.schema import DataConfig, ModelConfig, RunConfig
from clipx.data.loading.cache import embed_pairs
from clipx.data.loading.faults import BadSampleFile, explain_ended_worker, listed_bad_samples
from clipx.data.loading.loader import BatchLoader, open_loader, source_notes
from clipx.data.preprocess import tokenizer
from clipx.data.sampler import Sampler
from clipx.data.sources.base import PairSource, sampled_contents
from clipx.data.sources.opening import open_source
from clipx.data.sources.streams import Stream
from clipx.errors import UserError
from clipx.models import temperature
from clipx.models.clip import ClipModel
from clipx.models.frozen import frozen_towers, whole_towers
from clipx.run.checkpoint import checkpoints
from clipx.run.folder import RunFolder, record_environment
from clipx.run.initial_weights import build_initial_model, weights_source
from clipx.run.log import RunLog
from clipx.run.saving import CheckpointManager, resume
from clipx.training import optimizer, teacher
from clipx.training.cost import images_at_peak
from clipx.training.geometry_probe import GeometryProbe
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import log_row, reset_peak_memory, train_step
from clipx.training.stop_signals import StopMonitor
from clipx.training.timing import ThroughputMeter
from clipx.types import Progress
from clipx.utils.device import choose_device, cores_of_rank, loader_processes, precision_notes
from clipx.utils.plugins import source_hashes

MOST_WAITING = 0.2  # share of the time that a run may wait for data before a line says so
Evaluate = Callable[[ClipModel], dict[str, float]]  # model -> metrics; rank 0's are logged


class Outcome(Enum):
    """How a call of `fit` ended."""

    FINISHED = "finished"  # all steps are done
    STOPPED = "stopped"  # before the last step, and saved: run again to resume
    DIVERGED = "diverged"  # train.max_bad_steps steps in a row without a finite loss and gradient


def fit(config: RunConfig, run: Path, started: float | None = None, evaluate: Evaluate | None = None) -> Outcome:
    """Train until the run is finished, stopped or diverged. Starts from the last good checkpoint if there is one.

    A step without a finite loss and gradient is skipped. Ctrl-C, SIGTERM, SIGUSR1 and train.max_minutes stop the
    run after the current step. The minutes count from `started`, a time.monotonic() value (default: now). All ranks
    call `evaluate` every log.evaluate_every steps, after saving.

    Raises UserError: unusable settings, data or checkpoints, too many bad samples, no disk space for a checkpoint.
    Raises Fault: no batch came for data.stall_seconds, a loader process was killed, or a drive failed.
    """
    if (every := config.log.evaluate_every) and evaluate is None:
        raise UserError(f"log.evaluate_every={every} needs fit(..., evaluate=...); `clipx train` sets it")
    device = choose_device(config.train.device)
    with (
        distributed.group(device, timeout=max(1800.0, 2 * config.data.stall_seconds)),
        listed_bad_samples(run),
        nullcontext(_open_data(config, device)) as data,  # before StopMonitor: a signal ends the embedding at once
        StopMonitor(config.train.max_minutes, time.monotonic() if started is None else started) as stop,
        _open_session(config, run, device, data) as session,
    ):
        log, manager, components, meter = session.log, session.manager, session.components, session.meter
        state, total_steps = components.state, session.sampler.total_steps

        # Resume: run an evaluation that was interrupted; end if there is nothing left to train.
        _evaluate_if_due(session, evaluate)
        if outcome := _earlier_outcome(session, run):
            return outcome

        _record_start(session, run, device)
        if total_steps == 0:  # the untrained model is the result
            manager.save(state, {}, finished=True)
            return Outcome.FINISHED

        for batch, bad_samples in meter.timed(session.loader.batches(state.step, device, meter.computing)):
            # Train
            progress = session.sampler.progress(state.step)
            numbers = train_step(components, batch, progress)
            state.step += 1
            if session.sampler.progress(state.step).epoch > progress.epoch:
                state.objective.end_epoch(state.table)

            # Check and log
            geometry = session.probe(state.step, progress, meter.paused)
            finished = state.step == total_steps
            stop_reason = "" if finished else stop.reason(state.step)
            save = finished or bool(stop_reason) or manager.due(state.step, geometry)
            session.bad_samples += bad_samples
            bad_steps = _check_and_log(session, numbers, progress, geometry, save)
            if bad_steps >= config.train.max_bad_steps:
                return _diverged(session, run, bad_steps, numbers["terms"])

            # Save
            if finished or stop_reason or (save and not bad_steps):
                manager.save(state, geometry, finished, background=not (finished or stop_reason))
            if stop_reason:
                _log_bad_samples(session)
                log.info(f"{stop_reason}: saved at step {state.step} of {total_steps}; run the same command to resume")
                return Outcome.STOPPED
            _evaluate_if_due(session, evaluate)
    return Outcome.FINISHED


@dataclass
class _Session:
    """Everything that `fit` opens before the first step."""

    config: RunConfig
    sampler: Sampler
    components: TrainComponents
    loader: BatchLoader
    probe: GeometryProbe
    log: RunLog
    manager: CheckpointManager
    meter: ThroughputMeter
    bad_sample_file: BadSampleFile
    samples: dict[str, str]  # place -> hash of some samples, on rank 0; {} for streams
    noted_waiting: bool = False  # a line has said that the run waits for data
    bad_samples: list[str] = field(default_factory=list)  # names of this rank's bad samples that are not yet logged


Statistics = dict[str, tuple[Tensor, Tensor]]  # "image", "text" -> mean and standard deviation of the features


def _open_data(config: RunConfig, device: torch.device) -> tuple[PairSource | Stream, Sampler, Statistics]:
    """Open the training pairs and their order. With data.features, embed what is missing.

    Return also the statistics of the features.
    """
    pairs = open_source(config.data)
    sampler = build_sampler(config, pairs)  # refuses a batch larger than the data, before anything is embedded
    statistics: Statistics = {}
    for towers in (frozen_towers(config), whole_towers(config)):
        if towers:
            statistics |= embed_pairs(config.data, pairs, towers, device)
    return pairs, sampler, statistics


@contextmanager
def _open_session(
    config: RunConfig, run: Path, device: torch.device, data: tuple[PairSource | Stream, Sampler, Statistics]
) -> Iterator[_Session]:
    """Build the model and load the last good checkpoint; on exit, complete the checkpoint being written and the log."""
    reset_peak_memory(device)
    pairs, sampler, statistics = data
    resuming = distributed.broadcast_object(bool(checkpoints(run)))
    build_model = partial(build_initial_model, resuming=resuming, statistics=statistics)
    components = build_components(config, device, len(pairs), pairs.fingerprint, build_model)
    state, model, objective = components.state, components.state.model, components.state.objective
    tokenize = tokenizer.build_tokenizer(model.inputs)
    loader = open_loader(config.data, pairs, sampler, model.inputs, tokenize, objective.needs, model.frozen_towers)
    probe = GeometryProbe(config, pairs, tokenize, components.state.model)
    notes = [_summary(config, run, device, sampler, pairs.streaming)]
    notes += temperature.published_note(config.temperature, model.published_tau)
    if sampler.total_epochs:
        notes += temperature.notes(config.temperature, sampler.total_epochs, objective.learns_temperature)
        notes += objective.notes(sampler.total_epochs)
    notes += [
        *precision_notes(config.train.precision, device),
        *teacher.notes(config.model.teacher, objective.needs),
        *optimizer.notes(config.schedule, sampler.steps_per_epoch, sampler.total_steps),
        *source_notes(pairs, objective.columns),
        *tokenizer.notes(model.inputs, config.data.source),
        *resume(state, run),
        *(_changed_plugins(config, run) if resuming else []),
    ]
    manager = CheckpointManager(config, run)
    with explain_ended_worker(), RunLog(config, run, state.step, sampler.total_steps) as log, manager.thread:
        for note in notes:
            log.info(note)
        gpus = distributed.world_size() if device.type == "cuda" else 0
        meter = ThroughputMeter(components.timer, gpus, images_at_peak(config, device))
        samples = {} if pairs.streaming or distributed.rank() > 0 else sampled_contents(pairs)
        yield _Session(config, sampler, components, loader, probe, log, manager, meter, BadSampleFile(run), samples)


def _summary(config: RunConfig, run: Path, device: torch.device, sampler: Sampler, streaming: bool) -> str:
    """Return the first line of a run: its folder, device, towers and data."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    world = distributed.world_size()
    held_out = sampler.num_samples - sampler.num_train
    sizes = [f"{sampler.num_train:,} pairs{' per epoch' if streaming else ''}"]
    sizes += [f"{held_out:,} held out"] if held_out else []
    sizes += [f"{sampler.total_epochs:,} epochs"] if sampler.total_epochs > 1 else []
    sizes += ["kept in memory"] if config.data.cache == "memory" and not config.data.features else []
    data = f"{config.data.name} ({', '.join(sizes)})"
    return f"{run}: {_towers(config.model)} on {data}, {f'{world} processes on ' if world > 1 else ''}{name}"


def _towers(model: ModelConfig) -> str:
    """Return the towers with their start weights and what is trained, each if it is not the usual."""
    described = []
    for tower in (model.image, model.text):
        part = trained_part(tower)
        weights = tower.pretrained or ("random weights" if part else "")
        details = ", ".join(filter(None, ("" if model.init else weights, part)))
        described.append(f"{tower.name} ({details})" if details else tower.name)
    return " and ".join(dict.fromkeys(described)) + (f" from {model.init}" if model.init else "")


def build_sampler(config: RunConfig, pairs: PairSource | Stream) -> Sampler:
    """Return the order of this rank's samples, without the held-out pairs."""
    rank, world, held_out = distributed.rank(), distributed.world_size(), config.data.held_out
    image_of = pairs.image_of() if held_out and not pairs.streaming else None
    return Sampler(len(pairs), config.train, config.seed, rank, world, held_out, config.data.block, image_of)


def _earlier_outcome(session: _Session, run: Path) -> Outcome | None:
    """Return the outcome of a run that has finished (and log it) or diverged; None if steps are left."""
    if distributed.broadcast_object(RunFolder(run).divergence()):
        return Outcome.DIVERGED
    total_steps = session.sampler.total_steps
    if session.components.state.step == total_steps and checkpoints(run):
        session.log.info(f"{run} is done: {total_steps} steps")
        return Outcome.FINISHED
    return None


def _record_start(session: _Session, run: Path, device: torch.device) -> None:
    """Write environment.json and, in a new run, log the geometry of the untrained model."""
    step = session.components.state.step
    if distributed.rank() == 0:
        sources = _weights_sources(session, run)
        data: dict[str, Any] = {"data": session.components.state.data_fingerprint, "samples": session.samples}
        if session.config.plugins:
            data["plugins"] = source_hashes(session.config.plugins)
        if step:
            changed = _changed(RunFolder(run).environment.get("samples"), session.samples)
            if changed:
                shown = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
                session.log.info(f"warning: the data have changed since the run began, for example {shown}")
        record_environment(run, device, step, sources | data)
    if step == 0:
        geometry = session.probe(0, session.sampler.progress(0), session.meter.paused)
        session.log.record(0, {"geometry": geometry} if geometry else {})


def _changed_plugins(config: RunConfig, run: Path) -> list[str]:
    """Return a warning that names the plug-ins whose file has changed since the run began; [] if none has."""
    changed = _changed(RunFolder(run).environment.get("plugins"), source_hashes(config.plugins))
    which = f"plugins={','.join(changed)}: the code has changed since {run} began"
    return [f"warning: {which}; to train all steps with the new code, give the run another name="] if changed else []


def _changed(before: dict[str, str] | None, now: dict[str, str]) -> list[str]:
    """Return the names whose hash differs; None stands for no names."""
    return [name for name, content in (before or {}).items() if now.get(name, content) != content]


def _weights_sources(session: _Session, run: Path) -> dict[str, Any]:
    """Return checkpoints and SHA-256 of model.init, for a new run, and model.teacher.

    Raises UserError: the run resumes, and its teacher has other weights than at its start.
    """
    config, components = session.config, session.components
    if components.state.step == 0:
        return weights_source(config, "init") | weights_source(config, "teacher")
    before = RunFolder(run).environment.get("teacher") if components.teacher else None
    if before is None:  # no teacher is loaded, or a published one
        return {}
    now = weights_source(config, "teacher")["teacher"]
    if now["sha256"] != before["sha256"]:
        raise UserError(
            f"model.teacher={config.model.teacher} is now {now['checkpoint']} with other weights than "
            f"{before['checkpoint']}, the teacher of {run} so far: restore that one, or give the new run another name="
        )
    return {}


def _check_and_log(
    session: _Session, numbers: dict[str, Any], progress: Progress, geometry: dict[str, float], save: bool
) -> int:
    """Return the number of bad steps in a row so far, and log the step if it is due or bad.

    On a GPU, the host must wait to read the number. So it is read only before a log line or a checkpoint (`save`);
    otherwise the result is 0.
    """
    config, components, step = session.config, session.components, session.components.state.step
    session.meter.images += config.train.batch_size
    # does not depend on `geometry`, which only rank 0 has: all ranks must take the same branch
    due = any(every and step % every == 0 for every in (config.log.every, config.log.geometry_every))
    due = due or step == session.sampler.total_steps
    bad_steps = int(components.bad_steps) if due or save or components.device.type == "cpu" else 0
    if due or bad_steps:
        _log_step(session, numbers, progress, geometry)
    return bad_steps


def _log_step(session: _Session, numbers: dict[str, Any], progress: Progress, geometry: dict[str, float]) -> None:
    num_bad = _log_bad_samples(session)
    row = {**log_row(session.components, numbers, progress), **session.meter.read(), "bad": num_bad}
    row["data_wait"] = distributed.max_over_ranks(row["data_wait"])[0]  # the other ranks wait for the slowest loader
    if row["data_wait"] > MOST_WAITING and not session.noted_waiting and progress.step:
        session.noted_waiting = True
        session.log.info(_about_waiting(row["data_wait"], session.config.data, session.loader.source))
    step = session.components.state.step
    session.log.step(step, row | ({"geometry": geometry} if geometry else {}))
    if step == session.sampler.total_steps:
        if skipped := int(session.components.all_bad_steps):
            session.log.info(f"warning: steps without a finite loss and gradient, skipped since this start: {skipped}")
        if line := _about_chance(row["terms"], session.config):
            session.log.info(line)


def _about_chance(terms: dict[str, float], config: RunConfig) -> str:
    """Return a warning if the term `clip` is, within 1%, that of equal embeddings: ln B in each direction."""
    directions = 1 if config.objective.get("clip", {}).get("average", True) else 2
    if not math.isclose(terms.get("clip", math.nan), directions * math.log(config.train.batch_size), rel_tol=0.01):
        return ""
    guessing = f"clip={terms['clip']:.3f} is the loss of guessing among {config.train.batch_size} pairs"
    return f"warning: {guessing}; the model has learned nothing, or has collapsed"


def _about_waiting(share: float, data: DataConfig, source: PairSource | Stream) -> str:
    """Return what to change in a run that waits for its data."""
    cores, workers = cores_of_rank(), loader_processes(data.workers)
    more = [f"data.workers={workers + 1} or more (now {workers} of {cores} cores)"] if workers < cores - 1 else []
    decodes = data.decode == "exact" and data.cache == "none" and not data.features
    more += ["data.cache=memory"] if decodes and not source.streaming else []
    more += ["data.decode=fast"] if decodes and data.augment == "workers" else []
    hint = f"; it may help to set {' or '.join(more)}" if more else ""
    return f'training waits for its data {share:.0%} of the time{hint}; see "What a run costs" in docs/scaling.md'


def _log_bad_samples(session: _Session) -> int:
    """Log the bad samples of all ranks since the last call; return their number since the start of the processes."""
    found = distributed.gather_objects((session.loader.bad.bad, session.bad_samples))
    session.bad_samples = []
    if distributed.rank() == 0:
        for line in session.bad_sample_file.add([name for _, names in found for name in names]):
            session.log.info(line)
    return sum(count for count, _ in found)


def _diverged(session: _Session, run: Path, bad_steps: int, terms: dict[str, Tensor]) -> Outcome:
    """Record that the run has diverged, and tell the user. A checkpoint that could not be written is only logged.

    `terms` of the last step: those that are not finite are named.
    """
    if missed := session.manager.missed():
        session.log.info(missed)
    if names := [f"objective.{name}" for name, value in terms.items() if not math.isfinite(value)]:
        session.log.info(f"not finite in the last step: {', '.join(names)}")
    session.log.notify(RunFolder(run).record_divergence(session.components.state.step, bad_steps).message(run))
    return Outcome.DIVERGED


def _evaluate_if_due(session: _Session, evaluate: Evaluate | None) -> None:
    """Evaluate every log.evaluate_every steps and after the last, unless the log has an evaluation of this step."""
    every, state, log = session.config.log.evaluate_every, session.components.state, session.log
    due = bool(every and state.step) and (state.step == session.sampler.total_steps or state.step % every == 0)
    if evaluate and due and not log.has_evaluation(state.step):
        with session.meter.paused():
            log.evaluation(state.step, evaluate(state.model))
