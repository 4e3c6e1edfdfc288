"""The evaluation sets that belong to a run's training data (data.evaluation)."""

from clipx.config import EvalConfig, RunConfig
from clipx.data.sources import root_folder
from clipx.errors import UserError
from evaluation import runner
from evaluation.live import Live


def own_datasets(config: RunConfig) -> list[str]:
    """`kind:FOLDER` of each, below the run's data.root."""
    if not config.data.evaluation:
        return []
    specs = [entry.partition(":") for entry in config.data.evaluation]
    root = root_folder(config.data)
    return [f"{kind}:{root / folder}" for kind, _, folder in specs]


def check_evaluation(config: RunConfig) -> None:
    """Raises UserError naming those that are not there."""
    runner.open_sets(own_datasets(config))


def while_training(config: RunConfig) -> Live | None:
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
    return Live(config, datasets, EvalConfig().batch_size)
