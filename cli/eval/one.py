"""`clipx eval` of one run or of published weights, in this process or in several worker processes."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cli.launcher.torchrun import run_workers
from clipx.config.evaluation import EvalConfig
from clipx.errors import UserError
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import RunFolder, newest_runs
from clipx.utils.files import cache_home, expanded
from clipx.utils.plugins import load_plugins
from evaluation.runs import results
from evaluation.types import Result, Settings

if TYPE_CHECKING:  # slow imports, here and in the functions: a mistyped path is found before them
    import torch

WAIT = 86400.0  # seconds that the other ranks wait while rank 0 scores; a linear probe of a large set takes long


def evaluate(config: EvalConfig) -> list[Result]:
    """Evaluate a model, or record that its run diverged.

    A diverged run is evaluated only if config.checkpoint is the folder of one of its checkpoints.

    Returns all result rows; an empty list if config.processes > 1, because the worker processes print and write them.

    Raises UserError: neither or both of checkpoint and model, no data sets, or unusable weights or data.
    """
    if (config.checkpoint is None) == (config.model is None):
        both = "give one of RUN (a run directory) and model=open_clip:NAME/TAG_OR_FILE, hf-hub:USER/NAME or wpse:FOLDER"
        raise UserError(both + newest_runs())
    if config.ema and config.checkpoint is None:
        raise UserError("ema=true needs a run with averaged weights (train.ema)")
    if config.interpolate and config.checkpoint is None:
        raise UserError(f"interpolate= needs a run with start weights, not model={config.model}")
    if config.checkpoint is not None:
        run = Path(config.checkpoint)
        if (ended := RunFolder(run).divergence()) is not None:
            print(ended.message(run), file=sys.stderr)
            rows = results.record_divergence(run, ended)
            results.show(rows)
            return rows
        chosen, reason = RunFolder(run).best_or_last()
        if reason:
            print(f"evaluating {chosen}, {reason}; to evaluate another checkpoint, give its folder", file=sys.stderr)
        config = replace(config, checkpoint=str(chosen))
    _check(config)
    if config.processes == 1:
        return _run(config)
    from clipx.utils.device import check_gpus

    check_gpus("processes", config.processes, config.device)
    run_workers(config.processes, "cli.eval.one", [json.dumps(asdict(config))], "eval", saves=False)
    return []


def _check(config: EvalConfig) -> None:
    """Raise UserError for unusable settings, weights or data, before a model is downloaded or built."""
    from clipx.utils.device import kind_of_device

    kind_of_device(config.device, "device")
    run = _run_folder(config)
    datasets = [] if run is None else _datasets(config, run)  # before the slow imports
    from clipx.models.towers import open_clip_towers
    from evaluation import runner
    from evaluation.embedding import wpse
    from evaluation.embedding.encoder import check_start_weights

    if config.checkpoint is not None and run is not None:
        of_run = run.load_config()
        checkpoints.chosen_weights(Path(config.checkpoint), config.ema)
        if config.interpolate:
            check_start_weights(of_run, run.path)
    else:
        assert config.model is not None
        if config.model.startswith(wpse.PREFIX):
            wpse.load_config(config.model)
        else:
            open_clip_towers.parse_weights(config.model, "model")
    named = bool(config.datasets) or run is None  # a set of the run's config that has gone does not stop the others
    runner.check(datasets or _datasets(config, run), config.tasks, Settings.of(config), every=named)


def _run_folder(config: EvalConfig) -> RunFolder | None:
    """Return the folder of the run; None for published weights."""
    return None if config.checkpoint is None else RunFolder.of_checkpoint(Path(config.checkpoint))


def _run(config: EvalConfig) -> list[Result]:
    """Evaluate in this process; return all result rows on rank 0, an empty list on other ranks."""
    from clipx import distributed
    from clipx.utils.device import choose_device, explain_out_of_memory

    device = choose_device(config.device, "device")
    memory = explain_out_of_memory(f"batch_size={config.batch_size}", "a smaller one, or precision=bf16")
    with memory, distributed.group(device, timeout=WAIT):
        return [row for alpha in config.interpolate or (None,) for row in _evaluate(config, device, alpha)]


def _evaluate(config: EvalConfig, device: "torch.device", alpha: float | None) -> list[Result]:
    """Evaluate the model, or its weights interpolated with the start weights; return all rows, on rank 0."""
    from clipx import distributed
    from clipx.utils.device import loader_processes
    from evaluation import runner
    from evaluation.claims.measurements import popularity
    from evaluation.embedding import encoder, wpse
    from evaluation.embedding.features import Loading
    from evaluation.runs import suites

    run = _run_folder(config)
    if config.checkpoint is not None and run is not None:
        checkpoint = Path(config.checkpoint)
        model, _ = encoder.from_checkpoint(
            checkpoint, device, config.precision, config.ema, config.features_eval, alpha
        )
        out, note = _folder_of_results(run, checkpoint)
        out = out / "ema" if config.ema else out
    else:
        assert config.model is not None
        if config.model.startswith(wpse.PREFIX):
            model = encoder.from_wpse(config.model, device, config.precision, config.features_eval)
        else:
            model = encoder.from_open_clip(config.model, device, config.precision)
        out, note = Path("runs") / encoder.folder_name(config.model), ""
    out = Path(config.out or out)
    if alpha is not None:
        out = out / "interpolated" / f"{alpha:g}"
    if note and distributed.rank() == 0:
        print(f"{note}: results go to {out}", file=sys.stderr)
    loading = Loading(config.batch_size, loader_processes(config.workers), device, cache_home() / "features")
    training = None if run is None else run.config.data
    settings = Settings.of(config)
    rows = runner.evaluate(model, _datasets(config, run), config.tasks, out, loading, config.force, settings, training)
    if distributed.rank() > 0:
        return []
    if config.suite != "none":
        print(suites.mean_line(config.suite, rows))
    if config.checkpoint is not None and not config.ema and config.limit is None and alpha is None:
        # reads only the checkpoint and its training data
        rows += popularity.evaluate(Path(config.checkpoint), out, model, loading, config.force)
    if config.wandb != "off":
        results.to_wandb(rows, model.name, config.wandb, config.project, out)
    return rows


def _folder_of_results(run: RunFolder, checkpoint: Path) -> tuple[Path, str]:
    """Return the run's folder, or one below it for weights that are not the result of the whole training; and a note.

    The result of the training are the last or best weights. So no report mixes them with those of a run that is still
    training or has diverged.
    """
    from evaluation.runs import reader
    from evaluation.runs.description import unfinished

    best, _ = run.best_or_last()
    # not `reader.read`: a damaged result must not stop the evaluation that replaces it
    trained = reader.Run(run.path, run.config.name, run.config.seed, run.config, run.log, [], {}, run.environment)
    reached = "diverged" if run.divergence() else unfinished(trained)
    if checkpoint.samefile(best) and not reached:
        return run.path, ""
    note = f"{run.path} is not fully trained ({reached})" if reached else ""
    return run.path / results.INTERMEDIATE / checkpoint.resolve().name, note


def _datasets(config: EvalConfig, run: RunFolder | None) -> list[str]:
    """Return the data sets of datasets= and suite=; if both are empty, those of the run's config."""
    from evaluation.datasets.opening import check_name, locate
    from evaluation.runs import suites

    of_run = run.load_config() if run is not None else None
    sets = config.sets or (of_run and of_run.sets) or "data"
    of_suite = [] if config.suite == "none" else suites.sets_of(config.suite, expanded(sets))
    datasets = [locate(spec, sets, run.path if run else None) for spec in [*config.datasets, *of_suite]]
    for spec in datasets:
        check_name(spec)
    if not datasets and of_run is not None and run is not None:
        from evaluation.during_training import own_datasets

        datasets = own_datasets(replace(of_run, sets=config.sets or of_run.sets), run.path)
    if not datasets:
        if run is not None and run.config.data.held_out:
            raise UserError(f"{run.path} has no evaluation sets; datasets=[held_out] evaluates its held-out pairs")
        raise UserError("datasets= is empty; write datasets=[NAME,wds:DIR,captions:DIR] (see `clipx ls data`)")
    return datasets


def work(arguments: list[str]) -> None:
    """Evaluate as one worker process; the settings are the only argument."""
    config = EvalConfig(**json.loads(arguments[0]))
    load_plugins(config.plugins)
    _run(config)
