"""Save a run, resume it, and delete checkpoints that need not be kept; clipx/run/checkpoint.py lists their files."""

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from timm.utils.model_ema import ModelEmaV3
from torch import Tensor

from clipx import distributed, sample_table
from clipx.config.schema import RunConfig
from clipx.errors import UserError, one_line
from clipx.geometry import METRICS
from clipx.models.clip import ClipModel
from clipx.models.parallel import gather_shards, shard_like
from clipx.objectives.base import Objective
from clipx.run.checkpoint import (
    AVERAGED,
    BEST,
    MANIFEST,
    TABLE,
    TRAINING,
    WEIGHTS,
    checkpoints,
    file_sha256,
    folder,
    load_weights,
    read_manifest,
    read_metrics,
    remove_leftovers,
    run_of,
    step_of,
    verify,
)
from clipx.sample_table import SampleTable
from clipx.utils.files import new_folder

MetricsByStep = Mapping[int, Mapping[str, float]]  # step of a checkpoint -> metrics measured there
SIGNS = {"min": 1.0, "max": -1.0}  # of train.keep_best


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
        frozen = self.model.tower_digests()
        manifest = {
            "step": self.step,
            "data": self.data_fingerprint,
            "metrics": dict(metrics or {}),
            "sha256": digests,
            **({"frozen": frozen} if frozen else {}),
        }
        (path / MANIFEST).write_text(json.dumps(manifest, indent=1))

    def load(self, path: Path) -> None:
        """Load a checkpoint folder that `verify` has accepted.

        Raises UserError: not a checkpoint, or one of another model, objective or data set.
        """
        manifest = read_manifest(path)
        if manifest["data"] != self.data_fingerprint:
            raise UserError(
                f"{path} was trained on other data (fingerprint {manifest['data']}, now {self.data_fingerprint}): "
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


class RetentionPolicy:
    """Applies train.save_every, keep, keep_every and keep_best."""

    def __init__(self, config: RunConfig) -> None:
        """Raise UserError if train.keep_best is not min:METRIC or max:METRIC, or the metric is not measured."""
        self.train = config.train
        direction, _, self.best_metric = (config.train.keep_best or "").partition(":")  # a metric of the geometry probe
        self.best_sign = SIGNS.get(direction, 1.0)
        if config.train.keep_best is None:
            return
        if direction not in SIGNS or self.best_metric not in METRICS:
            allowed = f"min:METRIC or max:METRIC; metrics: {', '.join(sorted(METRICS))}"
            raise UserError(f"train.keep_best={config.train.keep_best} must be {allowed}")
        if not config.log.geometry_every:
            raise UserError(f"train.keep_best={config.train.keep_best} must be measured: set log.geometry_every")

    def due(self, step: int) -> bool:
        """Return True if this step is saved regardless of its metrics."""
        return step % self.train.save_every == 0 or self._is_multiple(step)

    def best_step(self, found: MetricsByStep) -> int | None:
        """Return the step with the best finite metric, the earliest if several are equal; None if none is finite."""
        values = {step: self.best_sign * m.get(self.best_metric, math.nan) for step, m in found.items()}
        finite = [step for step, value in values.items() if math.isfinite(value)]
        return min(finite, key=lambda step: (values[step], step), default=None)

    def retained(self, found: MetricsByStep) -> set[int]:
        """Return the steps to keep: the last ones, multiples of keep_every, and the best."""
        last = set(sorted(found)[-self.train.keep :])
        best = self.best_step(found)
        return last | set(filter(self._is_multiple, found)) | ({best} if best is not None else set())

    def _is_multiple(self, step: int) -> bool:
        return self.train.keep_every is not None and step % self.train.keep_every == 0


class CheckpointManager:
    """Applies train.save_every, keep, keep_every, keep_best and keep_optimizer."""

    def __init__(self, config: RunConfig, run: Path) -> None:
        """Raise UserError if train.keep_best cannot be used."""
        self.run = run
        self.policy = RetentionPolicy(config)
        self.measure_every = config.log.geometry_every
        self.keep_optimizer = config.train.keep_optimizer

    def due(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Return True if this step must be saved. All ranks get the same answer; only rank 0 needs `metrics`."""
        if self.policy.due(step):
            return True
        if not self.policy.best_metric or step % self.measure_every:
            return False
        best = distributed.rank() == 0 and self.policy.best_step({**self._metrics(), step: metrics}) == step
        return bool(distributed.all_reduce_max(float(best)))

    def save(self, state: TrainState, metrics: Mapping[str, float], finished: bool) -> None:
        """Write a checkpoint, and delete checkpoints that are no longer kept.

        `finished`: this is the last step, so no later step needs the optimizer's state.

        Raises UserError: the checkpoint could not be written.
        """
        state.save(self.run, metrics, with_optimizer=self.keep_optimizer or not finished)
        if distributed.rank() == 0:
            remove_leftovers(self.run, state.step)
            self._link_best()
            self._prune()

    def _link_best(self) -> None:
        best = self.policy.best_step(self._metrics())
        if best is not None:
            link = self.run / "checkpoints" / BEST
            temporary = link.with_name(f".{BEST}")
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(folder(self.run, best).name)
            temporary.replace(link)

    def _prune(self) -> None:
        retained = self.policy.retained(self._metrics())
        for path in checkpoints(self.run):
            if step_of(path) not in retained:
                shutil.rmtree(path)

    def _metrics(self) -> dict[int, dict[str, float]]:
        return {step_of(path): read_metrics(path) for path in checkpoints(self.run)}


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
    earlier = checkpoints(run_of(path))
    kept = f"the last good checkpoint is {earlier[-1]}" if earlier else "there is no earlier checkpoint"
    reason = one_line(error).removeprefix("Error while serializing: ")
    return (
        f"{path} could not be written ({reason}; {free:.0f} MiB are free there); {kept}: make room, then run the same "
        "command to resume"
    )
