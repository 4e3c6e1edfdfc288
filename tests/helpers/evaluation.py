"""Evaluate a fake encoder on small data sets."""

from pathlib import Path

from evaluation.runner import evaluate
from evaluation.types import DEFAULTS, Encoder, Result, Settings
from tests.helpers import fakes


def run(
    root: Path,
    specs: list[str],
    tasks: list[str],
    encoder: Encoder | None = None,
    force: bool = False,
    settings: Settings = DEFAULTS,
) -> list[Result]:
    """Evaluate the encoder, by default `fakes.encoder()`, and write its results to root/out; return them."""
    model = encoder or fakes.encoder()
    return evaluate(model, specs, tasks, root / "out", root / "features", 8, 0, "cpu", force, settings)
