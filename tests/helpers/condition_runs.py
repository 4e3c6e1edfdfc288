"""Settings and logs of runs on rendered scenes, from which training conditions are read. Nothing is trained."""

from pathlib import Path
from typing import Any

from cli.settings.compose import compose_run
from clipx.config.schema import RunConfig
from clipx.run.folder import RunFolder
from tests.helpers.report_runs import write_lines

ATTRIBUTES = ("count", "colour", "shape")
TOWERS = ["model.image.name='open_clip:mini-48'", "model.text.name='open_clip:mini-48'", "model.embed_dim=null"]
LENGTH = ["train.epochs=null", "train.samples=1280", "train.batch_size=64", "schedule.warmup_steps=0"]
DATA = ["data.held_out=0", "data.scenes.num_train=60000", *(f"data.scenes.{name}_share=null" for name in ATTRIBUTES)]
MINI = [*TOWERS, *LENGTH, *DATA]
# captions without faults
CLEAN = [f"data.scenes.{fault}=0" for fault in ("omit", "mislabelled", "irrelevant_numbers", "noise")]


def lines(losses: list[float], tau: float = 0.05) -> list[dict[str, Any]]:
    """Return a log with a line every ten steps. `losses` are those of the term clip."""
    return [
        {"step": 10 * k, "loss": 5 * loss, "terms": {"clip": loss, "keyword": 4 * loss}, "tau": tau}
        for k, loss in enumerate(losses, 1)
    ]


def finished(
    root: Path,
    *overrides: str,
    recipe: str = "recipe=counting_mini arm=clip",
    seed: int = 0,
    log: list[dict[str, Any]] | None = None,
) -> RunConfig:
    """Write config and log of a run of 20 steps, and return its config."""
    settings = {o.partition("=")[0]: o for o in [*MINI, *recipe.split(), *overrides]}  # the last value of a key wins
    name = f"run{sum(1 for _ in root.glob('runs/*'))}"
    config = compose_run([*settings.values(), f"name={name}", f"seed={seed}", f"runs={root / 'runs'}"])
    write_lines(RunFolder.create(config).path / "log.jsonl", lines([2.0, 1.0]) if log is None else log)
    return config
