"""Training: `fit` is the whole story of a run."""

from pathlib import Path

from clipx import distributed, environment, probe, runs, temperature
from clipx.config import RunConfig
from clipx.data import tokenizer
from clipx.data.sampler import Sampler
from clipx.data.sources import open_source
from clipx.data.stream_loader import notes as source_notes
from clipx.data.stream_loader import open_loader
from clipx.device import choose
from clipx.log import RunLog
from clipx.meter import Meter
from clipx.parts import build
from clipx.state import checkpoints, resume
from clipx.step import log_row, train_step


def fit(config: RunConfig, run: Path) -> None:
    """Trains to the end, from the last good checkpoint of the run directory if there is one.

    A step whose loss or gradient is not finite is skipped; after train.max_bad_steps of them in a row the run ends
    as diverged: its last checkpoint stays, and outcome.json says so.

    Raises:
        UserError: unusable settings, data or checkpoints, too many bad samples.
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
        notes = [
            *temperature.notes(config.temperature, sampler.total_epochs),
            *source_notes(pairs, parts.objective.columns),
            *resume(state, run),
        ]
        with RunLog(config, run, state.step, total) as log:
            for note in notes:
                log.say(note)
            if state.step == total and checkpoints(run):
                log.say(f"{run} is done: {total} steps")
                return
            environment.write(run, device)
            if state.step == 0:
                log.record(0, watch(0, sampler.progress(0)))
                if total == 0:  # the untrained model is what is wanted
                    state.save(run, config.train.keep)
            meter = Meter(parts.laps)
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
                    return
                if last or (state.step % config.train.save_every == 0 and not parts.bad_steps):
                    state.save(run, config.train.keep)


def _sampler(config: RunConfig, num_samples: int) -> Sampler:
    rank, world = distributed.rank(), distributed.world()
    return Sampler(num_samples, config.train, config.seed, rank, world, config.data.held_out, config.data.block)
