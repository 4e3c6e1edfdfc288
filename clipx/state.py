"""Checkpoints: weights as safetensors, the rest as tensors that `weights_only` loads; nothing is executed.

checkpoints/step_00000100/ holds model.safetensors, training.pt (optimizer, scaler, objective and random states),
table.safetensors (whole per-sample columns, if the objective has any), ema.safetensors (averaged weights, with
train.ema) and checkpoint.json (step and SHA-256 of the others). A folder appears in one rename, so it is complete.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from clipx import distributed, sample_table
from clipx.atomic import new_folder
from clipx.ema import Average
from clipx.errors import UserError
from clipx.objectives.base import Objective
from clipx.sample_table import SampleTable

WEIGHTS, TRAINING, MANIFEST = "model.safetensors", "training.pt", "checkpoint.json"
TABLE, AVERAGED = "table.safetensors", "ema.safetensors"


@dataclass
class RunState:
    """Everything that a step changes."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    data: str  # fingerprint of the data set; a resumed run must see the same
    step: int = 0  # steps done
    objective: Objective = field(default_factory=lambda: Objective({}, {}))  # its numbers, e.g. NUCLR's xi
    table: SampleTable = field(default_factory=lambda: SampleTable({}, 0))  # per-sample columns
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler(enabled=False))
    average: Average | None = None

    def save(self, run: Path, keep: int) -> Path:
        """Rank 0 writes checkpoints/step_XXXXXXXX and removes all but the last `keep`; the others wait."""
        path = run / "checkpoints" / f"step_{self.step:08d}"
        columns = self.table.whole()  # from all ranks
        if distributed.rank() == 0:
            with new_folder(path) as made:
                self._write(made, columns)
            leftovers = (run / "checkpoints").glob(".step_*")  # of killed runs
            for old in (*checkpoints(run)[:-keep], *leftovers):
                shutil.rmtree(old)
        distributed.barrier()
        return path

    def _write(self, folder: Path, columns: dict[str, Tensor]) -> None:
        save_file({k: v.contiguous() for k, v in self.model.state_dict().items()}, folder / WEIGHTS)
        optimizer, objective = self.optimizer.state_dict(), self.objective.state()
        training = {"optimizer": optimizer, "objective": objective, "random": _random_state()}
        torch.save({**training, "scaler": self.scaler.state_dict()}, folder / TRAINING)
        names = [WEIGHTS, TRAINING]
        if columns:
            sample_table.save(folder / TABLE, columns)
            names.append(TABLE)
        if self.average:
            save_file({k: v.contiguous() for k, v in self.average.weights.items()}, folder / AVERAGED)
            names.append(AVERAGED)
        digests = {name: digest(folder / name) for name in names}
        manifest = {"step": self.step, "data": self.data, "sha256": digests}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))

    def load(self, path: Path) -> None:
        """Continues from a checkpoint folder.

        Raises:
            UserError: damaged files, or another data set.
        """
        manifest = verify(path)
        if manifest["data"] != self.data:
            raise UserError(
                f"{path} was trained on other data (samples {manifest['data']}, now {self.data}): resume needs the "
                "same; give the new run another name="
            )
        load_weights(self.model, path)
        if self.table.columns:
            self.table.load(path / TABLE)
        if self.average:
            self.average.load(_read(path / AVERAGED))
        try:
            training = torch.load(path / TRAINING, weights_only=True, map_location="cpu")
            self.optimizer.load_state_dict(training["optimizer"])
            self.objective.load_state(training["objective"])
            if self.scaler.is_enabled():
                self.scaler.load_state_dict(training["scaler"])
            _set_random_state(training["random"])
        except Exception as error:  # torch.load raises many kinds on damage and on pickled objects
            raise UserError(f"{path / TRAINING} is no training state: {_first_line(error)}") from error
        self.step = manifest["step"]


def resume(state: RunState, run: Path) -> list[str]:
    """Loads the last good checkpoint of a run, if there is any, and returns lines that say what was done.

    A damaged checkpoint is passed over for the one before it.

    Raises:
        UserError: all checkpoints are damaged, or the data set has changed.
    """
    notes = []
    for path in reversed(checkpoints(run)):
        try:
            verify(path)
        except UserError as error:
            notes.append(f"passed over: {error}")
            continue
        state.load(path)
        return [*notes, f"resumed from {path}"]
    if notes:
        raise UserError(f"{run} has no good checkpoint ({'; '.join(notes)}): remove its checkpoints to start again")
    return []


def checkpoints(run: Path) -> list[Path]:
    """Checkpoint folders of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step_*"))


def resolve(path: Path) -> Path:
    """A checkpoint folder, from itself or from a run directory (its last one).

    Raises:
        UserError: neither of the two.
    """
    if (path / MANIFEST).is_file():
        return path
    found = checkpoints(path)
    if not found:
        kind = "a file" if path.is_file() else "a folder without checkpoints" if path.is_dir() else "missing"
        raise UserError(f"checkpoint={path} is {kind}: give a run directory or its checkpoints/step_* folder")
    return found[-1]


def verify(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files have the sizes and bytes that were written.

    Raises:
        UserError: naming the file that is missing or damaged.
    """
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        names = (WEIGHTS, TRAINING, *(name for name in (TABLE, AVERAGED) if name in manifest["sha256"]))
        expected = {name: str(manifest["sha256"][name]) for name in names}
        int(manifest["step"]), str(manifest["data"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / MANIFEST} cannot be read: {_first_line(error)}") from error
    for name in names:
        if not (path / name).is_file() or digest(path / name) != expected[name]:
            raise UserError(f"{path / name} is damaged or was changed: its SHA-256 is not the one of {MANIFEST}")
    return manifest


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
        raise UserError(f"{path / name} does not hold this model's weights: {_first_line(error)}") from error


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return dict(load_file(path))
    except Exception as error:  # safetensors' own error type
        raise UserError(f"{path} cannot be read: {_first_line(error)}") from error


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _random_state() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
