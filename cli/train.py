"""`clipx train`: train a run in this process, or in several worker processes on one or more machines."""

import os
import shlex
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch

from cli.launcher.torchrun import check_rendezvous, run_workers
from clipx.config.evaluation import EvalConfig
from clipx.config.schema import RunConfig
from clipx.data.sources.opening import open_source
from clipx.errors import REQUEUE, RunDiverged, UserError
from clipx.run.checkpoint import refuse_other_data
from clipx.run.folder import RunFolder
from clipx.train import Outcome, fit
from clipx.training.cost import check_memory
from clipx.utils.device import TRAIN_MEMORY_HINT, check_gpus, explain_out_of_memory, kind_of_device
from evaluation.during_training import build_periodic_evaluator, check_evaluation


def train(config: RunConfig) -> None:
    """Train or resume a run in its directory. Exits with code 75 if the run stopped early and was saved.

    Raises:
        UserError: invalid settings, data or checkpoints, or another process trains this run.
        RunDiverged: the run diverged, now or earlier. A run that diverged earlier is left unchanged.
    """
    started = time.monotonic()
    # on several machines, each machine runs this command, and `_fit` takes the lock on rank 0 only
    alone = config.launch.nodes == 1
    if not alone:
        check_rendezvous(config.launch)
    try:
        with RunFolder.of(config).hold() if alone else nullcontext():
            _check_moved_data(config)
            run = RunFolder.create(config)
            if run.divergence() is None:
                _start(config, run, started)
            if (ended := run.divergence()) is not None:
                raise RunDiverged(ended.message(run.path))
    except UserError:
        if alone:  # the settings of a run that was refused before its first step must not bind the next one
            RunFolder.of(config).remove_unstarted()
        raise


def _check_moved_data(config: RunConfig) -> None:
    """If a run resumes with another data.root, check the data there before the new root gets into its config.yaml."""
    run = RunFolder.of(config)
    if run.checkpoints and run.config.data.root != config.data.root:
        source = open_source(config.data)
        if (trained_on := run.environment.get("data")) is not None:
            refuse_other_data(run.path, trained_on, source.fingerprint)


def _start(config: RunConfig, run: RunFolder, started: float) -> None:
    # not choose_device: it would make a CUDA context (0.5 GB) in this process, which may only start the workers
    if kind_of_device(config.train.device) == "cpu" and config.train.samples != 0:
        check_memory(config, torch.device("cpu"))
    if not run.checkpoints:
        check_evaluation(config, EvalConfig())
    if config.train.processes == 1 and config.launch.nodes == 1:
        if code := _fit(config, run, started):
            sys.exit(code)
    else:
        check_gpus("train.processes", config.train.processes, config.train.device)
        open_source(config.data)  # here, so that an error is printed once and not by each worker
        build_periodic_evaluator(config)
        run_workers(config.train.processes, "cli.train", [str(run.path), str(started)], str(run.path), config.launch)
    _print_next(config, run)


def _print_next(config: RunConfig, run: RunFolder) -> None:
    if run.divergence() is None:
        plugins = [f"plugins=[{','.join(config.plugins)}]"] * bool(config.plugins)
        datasets = [f"datasets=[{'held_out' if config.data.held_out else 'NAME'}]"] * (not config.data.evaluation)
        names = "  # clipx ls data lists the names" if "datasets=[NAME]" in datasets else ""
        print(
            f"to evaluate: {shlex.join(['clipx', 'eval', str(run.path), *plugins, *datasets])}{names}", file=sys.stderr
        )


def _fit(config: RunConfig, run: RunFolder, started: float) -> int:
    takes_lock = config.launch.nodes > 1 and os.environ["RANK"] == "0"
    per_gpu = config.train.batch_size // (config.train.processes * config.launch.nodes)
    memory = explain_out_of_memory(
        f"train.batch_size={config.train.batch_size}, {per_gpu} pairs per GPU,", TRAIN_MEMORY_HINT
    )
    with memory, run.hold() if takes_lock else nullcontext():
        return REQUEUE if fit(config, run.path, started, build_periodic_evaluator(config)) is Outcome.STOPPED else 0


def work(arguments: list[str]) -> int:
    """Train as one worker process; the settings are in config.yaml in the run directory. Return the exit code."""
    run, started = RunFolder(Path(arguments[0])), float(arguments[1])
    return _fit(run.load_config(), run, started)
