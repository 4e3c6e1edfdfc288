"""Save a run, resume it, and delete checkpoints that need not be kept; clipx/run/checkpoint.py lists their files.

During training, rank 0 copies the state to CPU memory, and a thread writes the copy while training goes on. The last
checkpoint, and that of a run that stops, are complete when `CheckpointManager.save` returns.
"""

import hashlib
import json
import math
import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
from timm.utils.model_ema import ModelEmaV3
from torch import Tensor
from torch.utils._pytree import tree_map_only

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.errors import UserError, one_line
from clipx.geometry import PROBE_METRICS
from clipx.models.clip import ClipModel
from clipx.objectives.base import Objective
from clipx.run import checkpoint
from clipx.sample_table import SampleTable
from clipx.utils.files import new_folder

MetricsByStep = Mapping[int, Mapping[str, float]]  # step of a checkpoint -> metrics measured there
DTYPES = {  # names of types in safetensors
    torch.bool: "BOOL", torch.uint8: "U8", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64",
    torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
}  # fmt: skip
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
        snapshot = self.snapshot(metrics or {}, with_optimizer)
        if distributed.rank() == 0:
            snapshot.write(run)
        distributed.barrier()
        return checkpoint.folder(run, self.step)

    def snapshot(
        self, metrics: Mapping[str, float], with_optimizer: bool, copies: "HostCopies | None" = None
    ) -> "Snapshot":
        """Return what `save` writes; all ranks must call this, and only rank 0's result is complete.

        With `copies`, rank 0's tensors are copied there, so that training may go on; otherwise they are the live ones.
        """
        averages = {} if self.ema is None else {checkpoint.AVERAGED: self.ema.module}
        models = {checkpoint.WEIGHTS: self.model, **averages}
        states: dict[str, Any] = {name: model.state_dict() for name, model in models.items()}
        states["optimizer"] = self.optimizer.state_dict() if with_optimizer else None
        whole = tree_map_only(Tensor, copies, states) if copies and distributed.rank() == 0 else states
        training = {
            "optimizer": whole.pop("optimizer"),
            "objective": self.objective.state(),
            "scaler": self.scaler.state_dict(),
        }
        if columns := self.table.whole(copies) if copies else self.table.whole():
            whole[checkpoint.TABLE] = columns
        manifest = {"step": self.step, "data": self.data_fingerprint, "metrics": dict(metrics), "sha256": {}}
        frozen = self.model.tower_digests()
        return Snapshot(whole, training, manifest | ({"frozen": frozen} if frozen else {}))

    def load(self, path: Path) -> None:
        """Load a checkpoint folder that `verify` has accepted.

        Raises UserError: not a checkpoint, or one of another model, objective or data set.
        """
        manifest = checkpoint.read_manifest(path)
        checkpoint.refuse_other_data(path, manifest["data"], self.data_fingerprint)
        checkpoint.load_weights(self.model, path)
        if self.table.columns:
            self.table.load(path / checkpoint.TABLE)
        if self.ema is not None:
            checkpoint.load_weights(self.ema.module, path, checkpoint.AVERAGED)
        try:
            training = torch.load(path / checkpoint.TRAINING, weights_only=True, map_location="cpu")
            if training["optimizer"] is not None:  # else the run is finished (train.keep_optimizer=false)
                self.optimizer.load_state_dict(training["optimizer"])
                _align_moments(self.optimizer)
            self.objective.load_state(training["objective"])
            if self.scaler.is_enabled():
                self.scaler.load_state_dict(training["scaler"])
        except Exception as error:  # torch.load raises many types for corrupt files and for pickled objects
            raise UserError(f"{path / checkpoint.TRAINING} is not a valid training state: {one_line(error)}") from error
        self.step = manifest["step"]


@dataclass(frozen=True)
class Snapshot:
    """The content of a checkpoint."""

    tensors: dict[str, dict[str, Tensor]]  # name of a safetensors file -> its tensors
    training: dict[str, Any]  # content of checkpoint.TRAINING
    manifest: dict[str, Any]  # content of checkpoint.MANIFEST, without the SHA-256 of the files

    def write(self, run: Path) -> None:
        """Write checkpoints/step_XXXXXXXX of a run. Raises UserError: as `TrainState.save`."""
        path = checkpoint.folder(run, self.manifest["step"])
        if path.exists():  # corrupt, else the run would have resumed from it
            shutil.rmtree(path)
        try:
            with new_folder(path) as temporary:
                self._write_files(temporary)
        except Exception as error:
            # torch.save raises no special error type for a failed write; its message contains inline_container
            cause = error.__context__ if "inline_container" in str(error) else error
            if not isinstance(cause, OSError):
                raise
            raise UserError(_write_error(path, cause)) from error

    def _write_files(self, path: Path) -> None:
        # a HashedFile is enough for torch.save, which calls only write and flush
        writers: dict[str, Callable[[Any], None]] = {checkpoint.TRAINING: partial(torch.save, self.training)}
        for name, tensors in self.tensors.items():
            writers[name] = partial(write_tensors, tensors=tensors)
        digests = {}
        for name, write in sorted(writers.items()):
            with (path / name).open("wb") as file:
                hashed = HashedFile(file)
                write(hashed)
            digests[name] = hashed.sha256.hexdigest()
        (path / checkpoint.MANIFEST).write_text(json.dumps(self.manifest | {"sha256": digests}, indent=1))


class HostCopies:
    """Copies tensors to buffers in CPU memory; each checkpoint reuses the buffers of the one before."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []
        self._used = 0

    def reuse(self) -> None:
        """Let the next copies overwrite the buffers, in the order in which they were filled."""
        self._used = 0

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return a copy with the same strides. The copy of a GPU's tensor is complete after a synchronisation."""
        k, self._used = self._used, self._used + 1
        found = self._buffers[k : k + 1]
        layout = (tensor.dtype, tensor.shape, tensor.stride())
        if not found or (found[0].dtype, found[0].shape, found[0].stride()) != layout:
            # from pinned memory, because a GPU copies to it at several times the speed
            new = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False)
            self._buffers[k : k + 1] = [new]
        return self._buffers[k].copy_(tensor.detach(), non_blocking=True)


class CheckpointManager:
    """Applies train.save_every, keep, keep_every, keep_best and keep_optimizer."""

    def __init__(self, config: RunConfig, run: Path) -> None:
        """Raise UserError if train.keep_best is not min:METRIC or max:METRIC, or the metric is not measured."""
        self.run, self.train, self.measure_every = run, config.train, config.log.geometry_every
        self.thread = ThreadPoolExecutor(max_workers=1)  # runs nothing collective
        self._copies = HostCopies()
        self._writing: Future[None] | None = None  # the checkpoint that the thread writes
        self._latest: MetricsByStep = {}  # the metrics of that checkpoint
        direction, _, self.best_metric = (config.train.keep_best or "").partition(":")  # a metric of the geometry probe
        self.best_sign = SIGNS.get(direction, 1.0)
        if config.train.keep_best is None:
            return
        if direction not in SIGNS or self.best_metric not in PROBE_METRICS:
            allowed = f"min:METRIC or max:METRIC; metrics: {', '.join(sorted(PROBE_METRICS))}"
            raise UserError(f"train.keep_best={config.train.keep_best} must be {allowed}")
        if not self.measure_every:
            raise UserError(f"train.keep_best={config.train.keep_best} must be measured: set log.geometry_every")

    def due(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Return True if this step must be saved. All ranks get the same answer; only rank 0 needs `metrics`."""
        if step % self.train.save_every == 0 or self._is_multiple(step):
            return True
        if not self.best_metric or step % self.measure_every:
            return False
        best = False
        if distributed.rank() == 0:  # only this rank reads: elsewhere, a folder that is being deleted raises ESTALE
            failed = self._writing is not None and self._writing.done() and self._writing.exception() is not None
            found = {**self._metrics(step), **({} if failed else self._latest), step: metrics}
            best = self._best_step(found) == step
        return bool(distributed.max_over_ranks(float(best))[0])

    def save(self, state: TrainState, metrics: Mapping[str, float], finished: bool, background: bool = False) -> None:
        """Write a checkpoint, and delete checkpoints that are no longer kept; all ranks must call this.

        `finished`: this is the last step, so no later step needs the optimizer's state. `background`: return after the
        state is copied, while the thread writes. A checkpoint that is still being written is completed first. If that
        fails, this call also waits for its own, which is written if the disk has room again.

        Raises UserError: this checkpoint could not be written.
        """
        missed = self.missed()
        with_optimizer = self.train.keep_optimizer or not finished
        if background:
            self._start_writing(state, metrics, with_optimizer)
        else:
            state.save(self.run, metrics, with_optimizer)
            if distributed.rank() == 0:
                self._clean_up(state.step)
        if missed:
            self.wait()
            print(f"{missed}. Step {state.step} is written, so training goes on", file=sys.stderr)

    def _start_writing(self, state: TrainState, metrics: Mapping[str, float], with_optimizer: bool) -> None:
        self._copies.reuse()
        snapshot = state.snapshot(metrics, with_optimizer, self._copies)
        if distributed.rank() == 0:
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()  # the copies are complete
            self._latest = {state.step: dict(metrics)}
            self._writing = self.thread.submit(self._write, snapshot)

    def missed(self) -> str:
        """Wait for the thread; return why its checkpoint could not be written, or "" if it could."""
        try:
            self.wait()
        except UserError as error:
            self._latest = {}
            return str(error)
        return ""

    def wait(self) -> None:
        """Wait until the thread has written its checkpoint. Raises UserError: it could not be written."""
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def _write(self, snapshot: Snapshot) -> None:
        snapshot.write(self.run)
        self._clean_up(snapshot.manifest["step"])

    def _clean_up(self, step: int) -> None:
        """Link the best checkpoint, and delete those that are no longer kept."""
        checkpoint.remove_leftovers(self.run, step)
        found = self._metrics(step)
        best = self._best_step(found)
        if best is not None:
            link = self.run / "checkpoints" / checkpoint.BEST
            temporary = link.with_name(f".{checkpoint.BEST}")
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(checkpoint.folder(self.run, best).name)
            temporary.replace(link)
        retained = self.retained(found)
        checkpoint.remove(checkpoint.folder(self.run, at) for at in found if at not in retained)

    def retained(self, found: MetricsByStep) -> set[int]:
        """Return the steps to keep: the last ones, multiples of keep_every, and the best."""
        last = set(sorted(found)[-self.train.keep :])
        best = self._best_step(found)
        return last | set(filter(self._is_multiple, found)) | ({best} if best is not None else set())

    def _best_step(self, found: MetricsByStep) -> int | None:
        """Return the step with the best finite metric, the earliest if several are equal; None if none is finite."""
        values = {step: self.best_sign * m.get(self.best_metric, math.nan) for step, m in found.items()}
        finite = [step for step, value in values.items() if math.isfinite(value)]
        return min(finite, key=lambda step: (values[step], step), default=None)

    def _is_multiple(self, step: int) -> bool:
        return self.train.keep_every is not None and step % self.train.keep_every == 0

    def _metrics(self, last: int) -> dict[int, dict[str, float]]:
        """Return the metrics of the checkpoints up to the step `last`; later ones are corrupt and not yet removed."""
        return {
            at: checkpoint.read_metrics(path)
            for path in checkpoint.checkpoints(self.run)
            if (at := checkpoint.step_of(path)) <= last
        }


def resume(state: TrainState, run: Path) -> list[str]:
    """Load the last good checkpoint of a run, if there is any, and return lines for the log.

    Corrupt checkpoints are skipped. Rank 0 chooses for all ranks.

    Raises UserError: all checkpoints are corrupt, the data set has changed, or a rank cannot see rank 0's checkpoint.
    """
    path, notes = distributed.broadcast_object(_last_good(run) if distributed.rank() == 0 else (None, []))
    if path is None:
        return notes
    if not (path / checkpoint.MANIFEST).is_file():
        raise UserError(
            f"rank 0 resumes from {path}, which this machine does not see: with launch.nodes above 1 the run directory "
            "(runs=) must be on a file system that all machines share"
        )
    state.load(path)
    return [*notes, f"resumed from {path}"]


def _last_good(run: Path) -> tuple[Path | None, list[str]]:
    notes = []
    for path in reversed(checkpoint.checkpoints(run)):
        try:
            checkpoint.verify(path)
        except UserError as error:
            notes.append(f"skipped: {error}")
            continue
        return path, notes
    if notes:
        raise UserError(f"{run} has no good checkpoint ({'; '.join(notes)}): remove its checkpoints to start again")
    return None, []


def _align_moments(optimizer: torch.optim.Optimizer) -> None:
    """Give the moments the memory order of their weights: a fused optimizer pairs values by their place in memory.

    In checkpoints of clipx 0.1 with train.parallel=fsdp, the orders differ.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                state[name] = torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def _write_error(path: Path, error: OSError) -> str:
    free = shutil.disk_usage(checkpoint.run_of(path)).free / 2**20  # the folder checkpoints/ may not exist
    earlier = checkpoint.checkpoints(checkpoint.run_of(path))
    kept = f"the last good checkpoint is {earlier[-1]}" if earlier else "there is no earlier checkpoint"
    return (
        f"{path} could not be written ({one_line(error)}; {free:.0f} MiB are free there); {kept}: make room; if the "
        "run has ended, the same command resumes it"
    )


class HashedFile:
    """A file whose SHA-256 is computed while it is written, so that nothing is read back."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes and return their number, as `torch.save` expects."""
        self.sha256.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is closed."""


def write_tensors(file: HashedFile, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors in the format of safetensors: length of the header in 8 bytes, header, values of each tensor.

    `safetensors.torch.save_file` writes the same bytes, but only to a path, so its file would be hashed in a second
    pass. Wide types come first, which aligns all values. Source: https://github.com/huggingface/safetensors#format
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    entries, end = {}, 0
    for name, tensor in ordered:
        start, end = end, end + tensor.nbytes
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)
    file.write(len(header).to_bytes(8, "little") + header)
    for _, tensor in ordered:  # one at a time: a weight in channels_last is copied here
        file.write(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
