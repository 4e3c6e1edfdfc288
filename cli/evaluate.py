"""`clipx eval`: which model, which data sets, where the rows go."""

from pathlib import Path

from clipx import runs
from clipx.cache import cache_home
from clipx.config import EvalConfig, RunConfig
from clipx.data.sources import root_folder
from clipx.device import choose
from clipx.errors import UserError
from evaluation import encoder
from evaluation.runner import evaluate as run_evaluation


def evaluate(config: EvalConfig) -> None:
    """One call of `clipx eval`.

    Raises:
        UserError: not exactly one of checkpoint and model, nothing to evaluate on, or unusable weights or data.
    """
    if (config.checkpoint is None) == (config.model is None):
        raise UserError("give one of checkpoint=RUN_DIRECTORY and model=open_clip:NAME[/TAG_OR_FILE]")
    device = choose(config.device)
    datasets = config.datasets
    if config.checkpoint is not None:
        model, out = encoder.from_checkpoint(Path(config.checkpoint), device)
        datasets = datasets or own_datasets(runs.load_config(out))
    else:
        assert config.model is not None
        model, out = (
            encoder.from_open_clip(config.model, device),
            Path("runs") / encoder.folder_name(config.model),
        )
    if not datasets:
        raise UserError("datasets= is empty; write datasets=[wds:DIR,captions:DIR,pairs:DIR]")
    run_evaluation(
        model,
        specs=datasets,
        tasks=config.tasks,
        out=Path(config.out) if config.out else out,
        cache_dir=cache_home() / "features",
        batch_size=config.batch_size,
        workers=config.workers,
        device=device,
        force=config.force,
    )


def own_datasets(config: RunConfig) -> list[str]:
    """The evaluation sets of the run's training data, below its data.root."""
    if not config.data.evaluation:
        return []
    specs = [entry.partition(":") for entry in config.data.evaluation]
    root = root_folder(config.data)
    return [f"{kind}:{root / folder}" for kind, _, folder in specs]
