"""Checkpoints: weights as safetensors, the rest as tensors that `weights_only` loads; nothing is executed.

checkpoints/step_00000100/ holds model.safetensors, training.pt (states of optimizer, scaler and objective),
table.safetensors (whole per-sample columns, if the objective has any), ema.safetensors (averaged weights, with
train.ema) and checkpoint.json (step and SHA-256 of the others). A folder appears in one rename, so it is complete.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from clipx import distributed, sample_table
from clipx.errors import UserError, one_line
from clipx.models.ema import Average
from clipx.objectives.base import Objective
from clipx.sample_table import SampleTable
from clipx.utils.files import new_folder

WEIGHTS, TRAINING, MANIFEST = "model.safetensors", "training.pt", "checkpoint.json"
TABLE, AVERAGED = "table.safetensors", "ema.safetensors"
NAME = re.compile(r"step_([0-9]{8,})")  # of a checkpoint folder; whatever else lies beside them is not ours
UNFINISHED = re.compile(rf"\.{NAME.pattern}\..+")  # what a killed run leaves of a checkpoint
NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass
class TrainState:
    """Everything that a step changes."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    data: str  # fingerprint of the data set; a resumed run must see the same
    step: int = 0  # steps done
    objective: Objective = field(default_factory=lambda: Objective({}, {}))  # its numbers, e.g. NUCLR's xi
    table: SampleTable = field(default_factory=lambda: SampleTable({}, 0))  # per-sample columns
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler(enabled=False))
    average: Average | None = None

    def save(self, run: Path, metrics: Mapping[str, float] = NOTHING) -> Path:
        """Rank 0 writes checkpoints/step_XXXXXXXX and removes those of later steps; the others wait.

        Args: `metrics` of this step go into the manifest.

        Raises:
            UserError: it could not be written, most often a full disk; earlier checkpoints stay.
        """
        path = folder(run, self.step)
        columns = self.table.whole()  # from all ranks
        if distributed.rank() == 0:
            if path.exists():  # damaged, or the run would have been resumed from it
                shutil.rmtree(path)
            try:
                with new_folder(path) as made:
                    self._write(made, columns, metrics)
            except Exception as error:
                if not _is_of_the_disk(error):
                    raise
                raise UserError(_not_written(path, error)) from error
            # checkpoints after this step were damaged, since the run resumed from before them
            damaged = [later for later in checkpoints(run) if step_of(later) > self.step]
            for old in (*damaged, *_folders(run, UNFINISHED)):
                shutil.rmtree(old)
        distributed.barrier()
        return path

    def _write(self, made: Path, columns: dict[str, Tensor], metrics: Mapping[str, float]) -> None:
        save_file({k: v.contiguous() for k, v in self.model.state_dict().items()}, made / WEIGHTS)
        optimizer, objective = self.optimizer.state_dict(), self.objective.state()
        training = {"optimizer": optimizer, "objective": objective, "scaler": self.scaler.state_dict()}
        torch.save(training, made / TRAINING)
        names = [WEIGHTS, TRAINING]
        if columns:
            sample_table.save(made / TABLE, columns)
            names.append(TABLE)
        if self.average:
            save_file({k: v.contiguous() for k, v in self.average.weights.items()}, made / AVERAGED)
            names.append(AVERAGED)
        digests = {name: digest(made / name) for name in names}
        manifest = {"step": self.step, "data": self.data, "metrics": dict(metrics), "sha256": digests}
        (made / MANIFEST).write_text(json.dumps(manifest, indent=1))

    def load(self, path: Path) -> None:
        """Continues from a checkpoint folder, whose files `verify` has found to be whole.

        Raises:
            UserError: no checkpoint, of another model or objective, or another data set.
        """
        manifest, _ = _manifest(path)
        if manifest["data"] != self.data:
            raise UserError(
                f"{path} was trained on other data (samples {manifest['data']}, now {self.data}): resume needs the "
                "same; give the new run another name="
            )
        load_weights(self.model, path)
        if self.table.columns:
            self.table.load(path / TABLE)
        if self.average:
            self.average.load(read(path / AVERAGED))
        try:
            training = torch.load(path / TRAINING, weights_only=True, map_location="cpu")
            self.optimizer.load_state_dict(training["optimizer"])
            self.objective.load_state(training["objective"])
            if self.scaler.is_enabled():
                self.scaler.load_state_dict(training["scaler"])
        except Exception as error:  # torch.load raises many kinds on damage and on pickled objects
            raise UserError(f"{path / TRAINING} is not a valid training state: {one_line(error)}") from error
        self.step = manifest["step"]


def resume(state: TrainState, run: Path) -> list[str]:
    """Loads the last good checkpoint of a run, if there is any, and returns lines that say what was done.

    A damaged checkpoint is passed over for the one before it. Rank 0 chooses for all ranks.

    Raises:
        UserError: all checkpoints are damaged, the data set has changed, or a rank cannot see what rank 0 sees.
    """
    path, notes = distributed.broadcast_object(_last_good(run) if distributed.rank() == 0 else (None, []))
    if path is None:
        return notes
    if not (path / MANIFEST).is_file():
        raise UserError(
            f"rank 0 resumes from {path}, which this machine does not see: with launch.nodes above 1 the run directory "
            "(runs=) must be on a file system that all machines share"
        )
    state.load(path)
    return [*notes, f"resumed from {path}"]


def _last_good(run: Path) -> tuple[Path | None, list[str]]:
    notes = []
    for path in reversed(checkpoints(run)):
        try:
            verify(path)
        except UserError as error:
            notes.append(f"passed over: {error}")
            continue
        return path, notes
    if notes:
        raise UserError(f"{run} has no good checkpoint ({'; '.join(notes)}): remove its checkpoints to start again")
    return None, []


def checkpoints(run: Path) -> list[Path]:
    """Checkpoint folders of a run by their steps, oldest first; clocks and times of files do not count."""
    return sorted(_folders(run, NAME), key=step_of)


def folder(run: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return run / "checkpoints" / f"step_{step:08d}"


def step_of(checkpoint: Path) -> int:
    """The step in the name of a checkpoint folder."""
    named = NAME.fullmatch(checkpoint.name)
    assert named, f"{checkpoint} is no checkpoint folder"
    return int(named[1])


def _folders(run: Path, name: re.Pattern[str]) -> list[Path]:
    below = (run / "checkpoints").glob("*")
    return [path for path in below if name.fullmatch(path.name) and path.is_dir()]


def metrics(checkpoint: Path) -> dict[str, float]:
    """What was measured at the step of a checkpoint; nothing for a damaged one."""
    try:
        found = json.loads((checkpoint / MANIFEST).read_text()).get("metrics", {})
        return {str(name): float(value) for name, value in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def resolve(path: Path, key: str = "checkpoint") -> Path:
    """A checkpoint folder, from itself or from a run directory (its last one); `key` is the setting that names it.

    Raises:
        UserError: neither of the two.
    """
    if (path / MANIFEST).is_file():
        return path.parent / path.readlink() if path.is_symlink() else path  # checkpoints/best
    found = checkpoints(path)
    if not found:
        kind = "a file" if path.is_file() else "a folder without checkpoints" if path.is_dir() else "missing"
        raise UserError(f"{key}={path} is {kind}: give a run directory or its checkpoints/step_* folder")
    return found[-1]


def verify(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files have the bytes that were written.

    Raises:
        UserError: naming the file that is missing or damaged.
    """
    manifest, expected = _manifest(path)
    for name, sha256 in expected.items():
        if not (path / name).is_file() or digest(path / name) != sha256:
            raise UserError(f"{path / name} is damaged or was changed: its SHA-256 is not the one of {MANIFEST}")
    return manifest


def _manifest(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What it says, and file -> SHA-256."""
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        names = (WEIGHTS, TRAINING, *(name for name in (TABLE, AVERAGED) if name in manifest["sha256"]))
        expected = {name: str(manifest["sha256"][name]) for name in names}
        int(manifest["step"]), str(manifest["data"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / MANIFEST} cannot be read: {one_line(error)}") from error
    return manifest, expected


def chosen_weights(path: Path, averaged: bool) -> str:
    """The file of a checkpoint folder that holds the weights of the last step, or the averaged ones.

    Raises:
        UserError: it holds no averaged weights.
    """
    if averaged and not (path / AVERAGED).is_file():
        raise UserError(f"ema=true: {path} holds no averaged weights; a run keeps them with train.ema=DECAY")
    return AVERAGED if averaged else WEIGHTS


def load_weights(model: nn.Module, path: Path, name: str = WEIGHTS) -> None:
    """Weights of a checkpoint folder into a model: those of the last step, or `AVERAGED`.

    Raises:
        UserError: no safetensors file, or one of another model.
    """
    try:
        model.load_state_dict(load_file(path / name))
    except Exception as error:  # safetensors' own error type, RuntimeError on other shapes
        raise UserError(f"{path / name} does not hold this model's weights: {one_line(error)}") from error


def read(path: Path) -> dict[str, Tensor]:
    """All weights of a file. Raises UserError where it is no safetensors file."""
    try:
        return dict(load_file(path))
    except Exception as error:  # safetensors' own error type
        raise UserError(f"{path} cannot be read: {one_line(error)}") from error


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_of_the_disk(error: Exception) -> bool:
    """torch.save has no error of its own for a file that cannot be written."""
    return isinstance(error, (OSError, SafetensorError)) or "inline_container" in str(error)


def _not_written(path: Path, error: Exception) -> str:
    free = shutil.disk_usage(path.parent).free / 2**20
    before = checkpoints(path.parent.parent)
    kept = f"the last good checkpoint is {before[-1]}" if before else "there is no earlier checkpoint"
    reason = one_line(error).removeprefix("Error while serializing: ")
    return (
        f"{path} could not be written ({reason}; {free:.0f} MiB are free there); {kept}: make room, and the same "
        "command goes on from it"
    )
