"""The run directory `<runs>/<name>/s<seed>/`; its config.yaml is all that resume, eval and report read."""

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.config.setting import is_resumable
from clipx.errors import UserError
from clipx.run.checkpoint import checkpoints
from clipx.utils.files import write_text

OUTCOME = "outcome.json"


@dataclass(frozen=True)
class Diverged:
    """The end of a run whose loss or gradient stayed without a finite value."""

    step: int  # steps done or skipped
    bad_steps: int  # of them the last, in a row, skipped
    checkpoint: str | None  # the last good one, below the run directory
    outcome: str = "diverged"

    def text(self, run: Path) -> str:
        """For the person."""
        kept = f"its last good checkpoint is {run / self.checkpoint}" if self.checkpoint else "it has no checkpoint yet"
        return (
            f"{run} diverged at step {self.step}: {self.bad_steps} steps in a row without a finite loss and gradient; "
            f"{kept}. To train it anew, remove {run}, and its copies if it has train.copy_to"
        )


def directory(config: RunConfig) -> Path:
    """Where a run lives."""
    return Path(config.runs) / config.name / f"s{config.seed}"


def claim(config: RunConfig) -> Path:
    """The run directory with this config in it; a directory that holds another config is refused.

    Raises:
        UserError: the settings that differ, old -> new.
    """
    run = directory(config)
    if (run / "log.jsonl").exists() or (run / "checkpoints").exists():  # else it never got to its first step
        old = load_config(run)
        refuse_changes(old, config, str(run))
    write_text(run / "config.yaml", OmegaConf.to_yaml(OmegaConf.structured(config)))
    return run


def refuse_changes(old: RunConfig, config: RunConfig, where: str) -> None:
    """Raises UserError naming the settings that change what a run computes, old -> new, if there are any."""
    changed = [
        f"{key}: {_at(old, key)} -> {_at(config, key)}"
        for key in identity_keys(config)
        if _at(old, key) != _at(config, key)
    ]
    if changed:
        raise UserError(
            f"{where} already holds a run with other settings ({'; '.join(changed)}): "
            "give this one another name=, or remove that directory"
        )


def load_config(run: Path) -> RunConfig:
    """The config of a run directory.

    Raises:
        UserError: no or an unreadable config.yaml.
    """
    path = run / "config.yaml"
    if not path.is_file():
        raise UserError(f"{run} is not a run directory (it has no config.yaml)")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.load(path))
        config = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    assert isinstance(config, RunConfig)
    return config


def end_diverged(run: Path, step: int, bad_steps: int) -> Diverged:
    """Records the end of a run in its directory; called by all ranks, rank 0 writes."""
    found = checkpoints(run)
    ended = Diverged(step, bad_steps, f"checkpoints/{found[-1].name}" if found else None)
    if distributed.rank() == 0:
        write_text(run / OUTCOME, json.dumps(asdict(ended)) + "\n")
    return ended


def diverged(run: Path) -> Diverged | None:
    """How a run ended, if it diverged.

    Raises:
        UserError: a damaged record.
    """
    if not (run / OUTCOME).is_file():
        return None
    try:
        return Diverged(**json.loads((run / OUTCOME).read_text()))
    except (ValueError, TypeError) as error:
        raise UserError(f"{run / OUTCOME} is damaged: remove it, and the run goes on where it was") from error


def identity_keys(node: Any, prefix: str = "") -> list[str]:
    """Dotted names of all settings that change what a run computes."""
    keys = []
    for f in fields(node):
        if is_resumable(f):
            continue
        value = getattr(node, f.name)
        keys += identity_keys(value, f"{prefix}{f.name}.") if is_dataclass(value) else [f"{prefix}{f.name}"]
    return keys


def _at(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config
