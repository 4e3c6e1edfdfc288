"""When checkpoints of a run are made, which are removed, and that they are copied."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.run import checkpoint, retention
from clipx.run.checkpoint import TrainState, checkpoints, step_of
from clipx.run.remote import RemoteCheckpointStore
from clipx.run.uploader import CheckpointUploader

T = TypeVar("T")
BEST = "best"  # a link in checkpoints/ to the best one
POLL = 30.0  # seconds


class CheckpointManager:
    """Saves by train.save_every, keep, keep_every and keep_best; the end of a run waits for copies under way."""

    def __init__(
        self, config: RunConfig, run: Path, place: RemoteCheckpointStore | None, info: Callable[[str], None], step: int
    ) -> None:
        """Args: `step`: where the run stands; the checkpoint of it, if there is one, is a good one.

        Raises:
            UserError: train.keep_best cannot be used.
        """
        self.run = run
        self.policy = retention.policy(config)
        self.measured = config.log.geometry_every
        self.copies = CheckpointUploader(place, info) if place else None
        self.newest = checkpoint.folder(run, step)

    def __enter__(self) -> "CheckpointManager":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:  # ends at once: what is not copied is when the run goes on
            if self.copies:
                self.copies.end()
            return
        if self.copies:
            self.copies.add(self.newest)  # also if an earlier start left it undone; and what was written since then
            self.copies.end()
        # The others ask again and again, as one wait may not be longer than the process group's patience. They stay
        # to the end, because the launcher ends rank 0 soon after the others have ended.
        while distributed.all_reduce_max(float(not self._all_copied())):
            continue

    def copying(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches; with the first one, the checkpoint that the run goes on from is copied if it was not.

        Not before: a process with threads is better not forked, as the loader does.
        """
        for number, batch in enumerate(batches):
            if number == 0 and self.copies:
                self.copies.add(self.newest)
            yield batch

    def due(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Whether this step is to be saved; the same on all ranks, though only rank 0 has `metrics`."""
        if self.policy.due(step):
            return True
        if self.policy.best is None or step % self.measured:
            return False
        better = distributed.rank() == 0 and self.policy.best.of({**self._found(), step: metrics}) == step
        return bool(distributed.all_reduce_max(float(better)))

    def save(self, made: TrainState, metrics: Mapping[str, float]) -> None:
        """Writes the checkpoint, then removes those that no longer stay.

        Raises:
            UserError: it could not be written.
        """
        self.newest = made.save(self.run, metrics=metrics)
        if distributed.rank() == 0:
            self._prune()
            if self.copies:
                self.copies.add(self.newest)

    def _all_copied(self) -> bool:
        """Whether the last copy is there or was given up, or is within POLL seconds."""
        if self.copies is None:
            return True
        if not self.copies.ended(POLL):
            return False
        self._prune()  # what was kept while it was being copied
        return True

    def _prune(self) -> None:
        found = self._found()
        best = self.policy.best.of(found) if self.policy.best else None
        if best is not None:
            link = self.run / "checkpoints" / BEST
            link.with_name(f".{BEST}").unlink(missing_ok=True)
            link.with_name(f".{BEST}").symlink_to(checkpoint.folder(self.run, best).name)
            link.with_name(f".{BEST}").replace(link)
        stay = self.policy.retained(found)
        busy = self.copies.busy if self.copies else None  # removed next time
        for path in checkpoints(self.run):
            if step_of(path) not in stay and path != busy:
                shutil.rmtree(path)

    def _found(self) -> dict[int, dict[str, float]]:
        return {step_of(path): checkpoint.metrics(path) for path in checkpoints(self.run)}
