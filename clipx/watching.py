"""What is measured between steps: geometry of fixed pairs, accuracy on the run's evaluation sets."""

from collections.abc import Callable

from clipx import probe
from clipx.config import RunConfig
from clipx.data.tokenizer import Tokenizer
from clipx.errors import UserError
from clipx.models.clip import ClipModel
from clipx.types import Progress

Evaluate = Callable[[ClipModel], dict[str, float]]  # all ranks call it; what it returns on rank 0 is logged


def build(config: RunConfig, tokenizer: Tokenizer, model: ClipModel, evaluate: Evaluate | None) -> probe.Watch:
    """What to ask after each step: `geometry` as in the probe, `evaluation` every `log.evaluate_every` steps.

    The accuracies are also measured after the last step, but not before the first.

    Raises:
        UserError: as `probe.build`, or nothing to evaluate with.
    """
    geometry, every = probe.build(config, tokenizer, model), config.log.evaluate_every
    if not every:
        return geometry
    if evaluate is None:
        raise UserError(f"log.evaluate_every={every} needs fit(..., evaluate=...); `clipx train` gives it")

    def watch(steps: int, progress: Progress) -> dict[str, dict[str, float]]:
        seen = geometry(steps, progress)
        if steps and (steps % every == 0 or steps == progress.total_steps):
            seen = {**seen, "evaluation": evaluate(model)}
        return seen

    return watch
