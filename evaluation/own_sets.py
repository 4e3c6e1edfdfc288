"""The evaluation sets that belong to a run's training data (data.evaluation)."""

from clipx.config.schema import EvalConfig, RunConfig
from clipx.data.sources.opening import ensure_root_folder
from clipx.errors import UserError
from evaluation import runner
from evaluation.during_training import PeriodicEvaluator
from evaluation.types import Settings


def own_datasets(config: RunConfig) -> list[str]:
    """`kind:FOLDER` of each, below the run's data.root."""
    if not config.data.evaluation:
        return []
    specs = [entry.partition(":") for entry in config.data.evaluation]
    root = ensure_root_folder(config.data)
    return [f"{kind}:{root / folder}" for kind, _, folder in specs]


def check_evaluation(config: RunConfig, settings: EvalConfig) -> None:
    """Raises UserError naming those that are not there, or a task of the evaluation that none of them fits."""
    chosen = Settings(settings.prompts, settings.protocol, tuple(settings.pools))
    runner.check(own_datasets(config), settings.tasks, chosen)


def while_training(config: RunConfig) -> PeriodicEvaluator | None:
    """What scores them every log.evaluate_every steps; None where that is 0.

    Raises:
        UserError: sets that are not there, or none that can be scored.
    """
    every = config.log.evaluate_every
    if not every:
        return None
    try:
        datasets = runner.open_sets(own_datasets(config))
    except UserError as error:
        raise UserError(f"log.evaluate_every={every}: {error}") from error
    share = config.train.batch_size // (config.train.processes * config.launch.nodes)
    return PeriodicEvaluator(config, datasets, min(share, EvalConfig().batch_size))  # what fits in training fits here
