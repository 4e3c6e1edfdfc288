"""CheckpointManager: saves, prunes and uploads the checkpoints of a run."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.run import checkpoint, directory
from clipx.run.checkpoint import checkpoints, step_of
from clipx.run.remote import RemoteCheckpointStore
from clipx.run.retention import RetentionPolicy
from clipx.run.train_state import TrainState
from clipx.run.uploader import CheckpointUploader

BEST = "best"  # link in checkpoints/ to the best checkpoint
POLL_SECONDS = 30.0  # longest wait for uploads between two collective calls


def best_or_last(run: Path, key: str = "checkpoint") -> tuple[Path, str]:
    """Return the best checkpoint and the reason if the run keeps one (train.keep_best); else the last one and "".

    Raises UserError: there is none; the message names `key`.
    """
    best = run / "checkpoints" / BEST
    kept = directory.load_config(run).train.keep_best if best.is_symlink() else None
    return checkpoint.resolve(best if kept else run, key), f"because train.keep_best={kept}" if kept else ""


class CheckpointManager:
    """Applies train.save_every, keep, keep_every, keep_best and copy_to; waits for uploads on exit without error."""

    def __init__(
        self, config: RunConfig, run: Path, store: RemoteCheckpointStore | None, info: Callable[[str], None], step: int
    ) -> None:
        """`step`: the step from which the run resumes, 0 for a new run.

        Raises UserError: train.keep_best cannot be used.
        """
        self.run = run
        self.policy = RetentionPolicy(config)
        self.measure_every = config.log.geometry_every
        self.keep_optimizer = config.train.keep_optimizer
        self.uploader = CheckpointUploader(store, info) if store else None
        self.newest = checkpoint.folder(run, step)

    def __enter__(self) -> "CheckpointManager":
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None:
            self.upload_newest()  # even if it was uploaded before: the run's other files may have changed
        if self.uploader:
            self.uploader.close()
        if error_type is None:  # after an error the run ends at once; the newest checkpoint is uploaded on resume
            self._finish_uploads_and_prune()

    def upload_newest(self) -> None:
        """Queue the newest checkpoint for upload; it costs little if the remote store already has it.

        This starts a thread of network calls. Start it after the loader has forked its workers: a worker that is forked
        during such a call, for example a look-up of a host name, may wait for ever for the same lock.
        """
        if self.uploader:
            self.uploader.add(self.newest)

    def due(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Return True if this step must be saved. All ranks get the same answer; only rank 0 needs `metrics`."""
        if self.policy.due(step):
            return True
        if not self.policy.best_metric or step % self.measure_every:
            return False
        best = distributed.rank() == 0 and self.policy.best_step({**self._metrics(), step: metrics}) == step
        return bool(distributed.all_reduce_max(float(best)))

    def save(self, state: TrainState, metrics: Mapping[str, float], finished: bool) -> None:
        """Write a checkpoint, delete checkpoints that are no longer kept, and queue the new one for upload.

        `finished`: this is the last step, so no later step needs the optimizer's state.

        Raises UserError: the checkpoint could not be written.
        """
        self.newest = state.save(self.run, metrics, with_optimizer=self.keep_optimizer or not finished)
        if distributed.rank() == 0:
            checkpoint.remove_leftovers(self.run, state.step)
            self._link_best()
            self._prune()
            self.upload_newest()

    def _finish_uploads_and_prune(self) -> None:
        """Wait on all ranks until rank 0's uploads have ended, then delete checkpoints kept only for their upload.

        The other ranks wait at most POLL_SECONDS at a time, because a wait must not exceed the process group's timeout.
        They do not end before rank 0, because the launcher would end rank 0 soon afterwards.
        """
        pending = self.uploader is not None
        while distributed.all_reduce_max(float(pending)):
            if pending and self.uploader and self.uploader.join(POLL_SECONDS):
                self._prune()
                pending = False

    def _link_best(self) -> None:
        best = self.policy.best_step(self._metrics())
        if best is not None:
            link = self.run / "checkpoints" / BEST
            temporary = link.with_name(f".{BEST}")
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(checkpoint.folder(self.run, best).name)
            temporary.replace(link)

    def _prune(self) -> None:
        """Delete the checkpoints that are not kept, except the one being uploaded."""
        retained = self.policy.retained(self._metrics())
        uploading = self.uploader.current if self.uploader else None
        for path in checkpoints(self.run):
            if step_of(path) not in retained and path != uploading:
                shutil.rmtree(path)

    def _metrics(self) -> dict[int, dict[str, float]]:
        return {step_of(path): checkpoint.read_metrics(path) for path in checkpoints(self.run)}
