"""`clipx eval`: which model, which data sets, where the rows go; in this process, or one process per worker."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from cli.launcher.gpu_memory import enough_memory
from cli.train import check_gpus, run_workers
from clipx import distributed
from clipx.config.schema import EvalConfig
from clipx.errors import UserError
from clipx.run import checkpoint as state
from clipx.run import directory
from clipx.run.checkpoint_manager import BEST
from clipx.run.log import WANDB_MODES
from clipx.utils.device import PRECISIONS, choose_device
from clipx.utils.files import cache_home
from clipx.utils.registry import one_of
from evaluation import runner
from evaluation.analyses import point_weights, popularity
from evaluation.datasets.opening import locate
from evaluation.during_training import own_datasets
from evaluation.embedding import encoder
from evaluation.runs import results
from evaluation.types import Settings


def evaluate(config: EvalConfig) -> None:
    """One call of `clipx eval`. Of a run that diverged it is recorded; its checkpoints can be scored by their names.

    Raises:
        UserError: not exactly one of checkpoint and model, nothing to evaluate on, or unusable weights or data.
    """
    if (config.checkpoint is None) == (config.model is None):
        raise UserError("give one of checkpoint=RUN_DIRECTORY and model=open_clip:NAME[/TAG_OR_FILE]")
    if config.ema and config.checkpoint is None:
        raise UserError("ema=true is for checkpoint=, whose run has averaged weights (train.ema)")
    if config.checkpoint is not None and (ended := directory.read_divergence(Path(config.checkpoint))) is not None:
        print(ended.message(Path(config.checkpoint)), file=sys.stderr)
        results.show(results.record_divergence(Path(config.checkpoint), ended))
        return
    config = _best_of_run(config)
    _check(config)
    if config.processes == 1:
        _work(config)
    else:
        check_gpus("processes", config.processes, config.device)
        run_workers(config.processes, "cli.eval", [json.dumps(asdict(config))], "eval")


def _best_of_run(config: EvalConfig) -> EvalConfig:
    """With the best checkpoint in place of a run directory that keeps one (train.keep_best), saying so."""
    if config.checkpoint is None:
        return config
    run = Path(config.checkpoint)
    best = run / "checkpoints" / BEST
    kept = directory.load_config(run).train.keep_best if best.is_symlink() else None
    if kept is None:
        return config
    chosen = state.resolve(best)
    print(f"{chosen} is scored, as train.keep_best={kept}; checkpoint= can name another step's folder", file=sys.stderr)
    return replace(config, checkpoint=str(chosen))


def _check(config: EvalConfig) -> None:
    """Says what is wrong once, and before a model is fetched or built."""
    one_of(config.wandb, WANDB_MODES, "wandb")
    one_of(config.precision, PRECISIONS, "precision")
    choose_device(config.device, "device")
    if config.checkpoint is not None:
        checkpoint = state.resolve(Path(config.checkpoint))
        directory.load_config(checkpoint.parent.parent)
        state.chosen_weights(checkpoint, config.ema)
    else:
        assert config.model is not None
        encoder.parse(config.model)
    runner.check(_datasets(config), config.tasks, _settings(config))


def _evaluate(config: EvalConfig) -> None:
    """In this process, or in this worker of several."""
    device = choose_device(config.device, "device")
    with distributed.group(device):
        if config.checkpoint is not None:
            model, run = encoder.from_checkpoint(Path(config.checkpoint), device, config.precision, config.ema)
            out = run / "ema" if config.ema else run  # a report of the run takes its last weights
        else:
            assert config.model is not None
            model = encoder.from_open_clip(config.model, device, config.precision)
            out = Path("runs") / encoder.folder_name(config.model)
        out = Path(config.out) if config.out else out
        rows = runner.evaluate(
            model,
            specs=_datasets(config),
            tasks=config.tasks,
            out=out,
            cache_dir=cache_home() / "features",
            batch_size=config.batch_size,
            workers=config.workers,
            device=device,
            force=config.force,
            settings=_settings(config),
        )
        if config.checkpoint is not None and not config.ema and distributed.rank() == 0:
            rows += popularity.evaluate(Path(config.checkpoint), out)  # of the checkpoint, whatever the tasks
            if not config.tasks:
                point_weights.evaluate(Path(config.checkpoint), out)
        if config.wandb != "off" and distributed.rank() == 0:
            results.to_wandb(rows, model.name, config.wandb, config.project, out)


def _datasets(config: EvalConfig) -> list[str]:
    """Those asked for, else the run's own."""
    datasets = [locate(spec, config.root) for spec in config.datasets]
    if not datasets and config.checkpoint is not None:
        run = state.resolve(Path(config.checkpoint)).parent.parent
        datasets = own_datasets(directory.load_config(run))
    if not datasets:
        raise UserError("datasets= is empty; write datasets=[NAME,wds:DIR,captions:DIR] (`clipx ls data` lists them)")
    return datasets


def _settings(config: EvalConfig) -> Settings:
    return Settings(config.prompts, config.protocol, tuple(config.pools))


def _work(config: EvalConfig) -> int:
    with enough_memory(f"batch_size={config.batch_size}", "a smaller one, or precision=bf16"):
        _evaluate(config)
    return 0


if __name__ == "__main__":  # a worker: its settings are the one argument
    from cli.launcher.agent import work

    worker_config = EvalConfig(**json.loads(sys.argv[1]))
    work(lambda: _work(worker_config))
