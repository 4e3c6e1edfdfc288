"""Checkpoints: safetensors, and a training state for torch.load(weights_only=True), so that loading executes no code.

checkpoints/step_00000100/ holds

    model.safetensors   weights of the model
    training.pt         states of optimizer (train.keep_optimizer=false: not after the last step), objective, GradScaler
    table.safetensors   whole per-sample columns, if the objective has any
    ema.safetensors     averaged weights, with train.ema
    checkpoint.json     step, data fingerprint, metrics, and the SHA-256 of the other files

A folder is written under a temporary name and then renamed, so it is always complete.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from timm.utils.model_ema import ModelEmaV3
from torch import Tensor, nn

from clipx import distributed, sample_table
from clipx.errors import UserError, one_line
from clipx.models.clip import ClipModel
from clipx.models.parallel import gather_shards, shard_like
from clipx.objectives.base import Objective
from clipx.sample_table import SampleTable
from clipx.utils.files import new_folder

WEIGHTS, TRAINING, MANIFEST = "model.safetensors", "training.pt", "checkpoint.json"
TABLE, AVERAGED = "table.safetensors", "ema.safetensors"
NAME = re.compile(r"step_([0-9]{8,})")  # name of a checkpoint folder; other files in checkpoints/ are ignored
UNFINISHED = re.compile(rf"\.{NAME.pattern}\..+")  # temporary folder left behind by a killed run


@dataclass
class TrainState:
    """Everything that a step changes."""

    model: ClipModel
    optimizer: torch.optim.Optimizer
    data_fingerprint: str  # of the data set; must be the same when a run resumes
    step: int = 0  # steps done
    objective: Objective = field(default_factory=lambda: Objective({}, {}))  # includes its state, e.g. NUCLR's xi
    table: SampleTable = field(default_factory=lambda: SampleTable({}, 0))  # per-sample columns
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler(enabled=False))
    ema: ModelEmaV3 | None = None  # averages of weights and running statistics: e <- decay e + (1 - decay) w

    def save(self, run: Path, metrics: Mapping[str, float] | None = None, with_optimizer: bool = True) -> Path:
        """Write checkpoints/step_XXXXXXXX on rank 0 and return its path; all ranks must call this.

        A corrupt checkpoint of the same step is replaced. `metrics` of this step go into the manifest. A run cannot
        continue from a checkpoint without the optimizer's state.

        Raises UserError: the checkpoint could not be written, usually because the disk is full; earlier ones are kept.
        """
        path = folder(run, self.step)
        columns, whole = self.table.whole(), self._gathered(with_optimizer)  # collective
        if distributed.rank() == 0:
            if path.exists():  # corrupt, else the run would have resumed from it
                shutil.rmtree(path)
            try:
                with new_folder(path) as temporary:
                    self._write(temporary, columns, whole, metrics)
            except Exception as error:
                # torch.save raises no special error type for a failed write; its message contains inline_container
                if not (isinstance(error, OSError | SafetensorError) or "inline_container" in str(error)):
                    raise
                raise UserError(_write_error(path, error)) from error
        distributed.barrier()
        return path

    def _gathered(self, with_optimizer: bool) -> dict[str, Any]:
        """Return file name -> weights, and "optimizer" -> its state or None. On rank 0 all shards are joined."""
        models = {WEIGHTS: self.model} if self.ema is None else {WEIGHTS: self.model, AVERAGED: self.ema.module}
        states = {name: model.state_dict() for name, model in models.items()}
        return gather_shards({**states, "optimizer": self.optimizer.state_dict() if with_optimizer else None})

    def _write(
        self, path: Path, columns: dict[str, Tensor], whole: dict[str, Any], metrics: Mapping[str, float] | None
    ) -> None:
        training = {
            "optimizer": whole.pop("optimizer"),
            "objective": self.objective.state(),
            "scaler": self.scaler.state_dict(),
        }
        for name, weights in whole.items():
            save_file({key: tensor.contiguous() for key, tensor in weights.items()}, path / name)
        torch.save(training, path / TRAINING)
        if columns:
            sample_table.save(path / TABLE, columns)
        digests = {file.name: file_sha256(file) for file in sorted(path.iterdir())}
        manifest = {"step": self.step, "data": self.data_fingerprint, "metrics": dict(metrics or {}), "sha256": digests}
        (path / MANIFEST).write_text(json.dumps(manifest, indent=1))

    def load(self, path: Path) -> None:
        """Load a checkpoint folder that `verify` has accepted.

        Raises UserError: not a checkpoint, or one of another model, objective or data set.
        """
        manifest = _manifest(path)
        if manifest["data"] != self.data_fingerprint:
            raise UserError(
                f"{path} was trained on other data (samples {manifest['data']}, now {self.data_fingerprint}): "
                "resuming needs the same data; give the new run another name="
            )
        load_weights(self.model, path)
        if self.table.columns:
            self.table.load(path / TABLE)
        if self.ema is not None:
            load_weights(self.ema.module, path, AVERAGED)
        try:
            training = torch.load(path / TRAINING, weights_only=True, map_location="cpu")
            if training["optimizer"] is not None:  # else the run is finished (train.keep_optimizer=false)
                self.optimizer.load_state_dict(_sharded(training["optimizer"], self.optimizer))
            self.objective.load_state(training["objective"])
            if self.scaler.is_enabled():
                self.scaler.load_state_dict(training["scaler"])
        except Exception as error:  # torch.load raises many types for corrupt files and for pickled objects
            raise UserError(f"{path / TRAINING} is not a valid training state: {one_line(error)}") from error
        self.step = manifest["step"]


def resume(state: TrainState, run: Path) -> list[str]:
    """Load the last good checkpoint of a run, if there is any, and return lines for the log.

    Corrupt checkpoints are skipped. Rank 0 chooses for all ranks.

    Raises UserError: all checkpoints are corrupt, the data set has changed, or a rank cannot see rank 0's checkpoint.
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
            notes.append(f"skipped: {error}")
            continue
        return path, notes
    if notes:
        raise UserError(f"{run} has no good checkpoint ({'; '.join(notes)}): remove its checkpoints to start again")
    return None, []


def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoint folders of a run in ascending order of step; file times are ignored."""
    return sorted(_folders(run, NAME), key=step_of)


def remove_leftovers(run: Path, step: int) -> None:
    """Delete checkpoints later than the one just saved (`step`), and unfinished folders of killed runs.

    Later checkpoints are corrupt, because the run resumed from an earlier one.
    """
    later = [path for path in checkpoints(run) if step_of(path) > step]
    for path in (*later, *_folders(run, UNFINISHED)):
        shutil.rmtree(path)


def folder(run: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return run / "checkpoints" / f"step_{step:08d}"


def step_of(checkpoint: Path) -> int:
    """Return the step in the name of a checkpoint folder."""
    match = NAME.fullmatch(checkpoint.name)
    assert match, f"{checkpoint} is no checkpoint folder"
    return int(match[1])


def _folders(run: Path, name: re.Pattern[str]) -> list[Path]:
    entries = (run / "checkpoints").glob("*")
    return [path for path in entries if name.fullmatch(path.name) and path.is_dir()]


def read_metrics(checkpoint: Path) -> dict[str, float]:
    """Return the metrics in a checkpoint's manifest; {} if it is corrupt."""
    try:
        metrics = json.loads((checkpoint / MANIFEST).read_text()).get("metrics", {})
        return {str(name): float(value) for name, value in metrics.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def resolve(path: Path, key: str = "checkpoint") -> Path:
    """Return the checkpoint folder at `path`, or the last one if `path` is a run directory.

    `key` is the setting that holds the path. A link (checkpoints/best) is followed.

    Raises UserError: the path is neither a checkpoint folder nor a run directory with checkpoints.
    """
    if (path / MANIFEST).is_file():
        return path.parent / path.readlink() if path.is_symlink() else path
    found = checkpoints(path)
    if not found:
        kind = "a file" if path.is_file() else "a folder without checkpoints" if path.is_dir() else "missing"
        below = sorted(folder.parent for folder in path.glob("*/checkpoints"))
        example = f", such as {below[0]}" if below else ""
        raise UserError(f"{key}={path} is {kind}: give a run directory{example}, or its checkpoints/step_* folder")
    return found[-1]


def verify(path: Path) -> dict[str, Any]:
    """Check that the files of a checkpoint have the SHA-256 of its manifest, and return the manifest.

    Raises UserError: a file is missing or corrupt; the message names it.
    """
    manifest = _manifest(path)
    for name, digest in manifest["sha256"].items():
        if not (path / name).is_file() or file_sha256(path / name) != digest:
            raise UserError(f"{path / name} is corrupt or was changed: its SHA-256 differs from {MANIFEST}")
    return manifest


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        digests = manifest["sha256"]
        int(manifest["step"]), manifest["data"], digests[WEIGHTS], digests[TRAINING]  # raises if one is missing
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / MANIFEST} cannot be read: {one_line(error)}") from error
    return manifest


def chosen_weights(path: Path, averaged: bool) -> str:
    """Return the file name of a checkpoint's weights: averaged, or of the last step.

    Raises UserError: the checkpoint has no averaged weights.
    """
    if averaged and not (path / AVERAGED).is_file():
        raise UserError(f"ema=true: {path} holds no averaged weights; a run keeps them with train.ema=DECAY")
    return AVERAGED if averaged else WEIGHTS


def load_weights(model: nn.Module, path: Path, name: str = WEIGHTS) -> None:
    """Load weights of a checkpoint folder into a model: `WEIGHTS` of the last step, or `AVERAGED`.

    Raises UserError: the file is missing, unreadable or of another model.
    """
    set_weights(model, read_weights(path, name), path / name)


def read_weights(path: Path, name: str = WEIGHTS) -> dict[str, Tensor]:
    """Read weights of a checkpoint folder. Raises UserError: the file is missing or unreadable."""
    try:
        return load_file(path / name)
    except Exception as error:  # a missing file, or the error type of safetensors
        raise UserError(f"{path / name} cannot be read: {one_line(error)}") from error


def set_weights(model: nn.Module, weights: Mapping[str, Tensor], file: Path) -> None:
    """Copy the weights of a file into a model. Raises UserError: they are of another model."""
    own = model.state_dict()
    for key in sorted(own.keys() | weights.keys()):
        expected, given = (list(tensors[key].shape) if key in tensors else "none" for tensors in (own, weights))
        if expected != given:
            raise UserError(f"{file} is of another model: {key} has shape {given} there, {expected} in this run")
    model.load_state_dict({key: shard_like(whole, own[key]) for key, whole in weights.items()})


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sharded(saved: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the saved state with this process's part of each moment, if the parameters are sharded."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = {
        index: {name: shard_like(value, parameters[index]) for name, value in state.items()}
        for index, state in saved["state"].items()
    }
    return saved | {"state": states}


def _write_error(path: Path, error: Exception) -> str:
    free = shutil.disk_usage(path.parent).free / 2**20
    earlier = checkpoints(path.parent.parent)
    kept = f"the last good checkpoint is {earlier[-1]}" if earlier else "there is no earlier checkpoint"
    reason = one_line(error).removeprefix("Error while serializing: ")
    return (
        f"{path} could not be written ({reason}; {free:.0f} MiB are free there); {kept}: make room, then run the same "
        "command to resume"
    )
