"""When checkpoints of a run are made, which are removed, and that they are copied."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from clipx import distributed, retention, state
from clipx.config import RunConfig
from clipx.copies import Copies
from clipx.second_place import Place
from clipx.state import RunState, checkpoints, step_of

BEST = "best"  # a link in checkpoints/ to the best one


class Saver:
    """Saves by train.save_every, keep, keep_every and keep_best; its end waits for copies under way."""

    def __init__(self, config: RunConfig, run: Path, place: Place | None, say: Callable[[str], None]) -> None:
        """Raises UserError where train.keep_best cannot be used."""
        self.run = run
        self.policy = retention.policy(config)
        self.measured = config.log.geometry_every
        self.copies = Copies(place, say) if place else None

    def __enter__(self) -> "Saver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.copies:
            self.copies.finish()
            self._prune()  # what was kept while it was being copied
        if kind is None:
            distributed.barrier()  # the launcher ends rank 0 soon after the others have ended

    def due(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Whether this step is to be saved; the same on all ranks, though only rank 0 has `metrics`."""
        if self.policy.due(step):
            return True
        if self.policy.best is None or step % self.measured:
            return False
        better = distributed.rank() == 0 and self.policy.best.of({**self._found(), step: metrics}) == step
        return bool(distributed.max_of(float(better)))

    def save(self, made: RunState, metrics: Mapping[str, float]) -> None:
        """Writes the checkpoint, then removes those that no longer stay.

        Raises:
            UserError: it could not be written.
        """
        path = made.save(self.run, metrics=metrics)
        if distributed.rank() == 0:
            self._prune()
            if self.copies:
                self.copies.add(path)

    def _prune(self) -> None:
        found = self._found()
        best = self.policy.best.of(found) if self.policy.best else None
        if best is not None:
            link = self.run / "checkpoints" / BEST
            link.with_name(f".{BEST}").unlink(missing_ok=True)
            link.with_name(f".{BEST}").symlink_to(f"step_{best:08d}")
            link.with_name(f".{BEST}").replace(link)
        stay = self.policy.retained(found)
        busy = self.copies.busy if self.copies else None  # removed next time
        for path in checkpoints(self.run):
            if step_of(path) not in stay and path != busy:
                shutil.rmtree(path)

    def _found(self) -> dict[int, dict[str, float]]:
        return {step_of(path): state.metrics(path) for path in checkpoints(self.run)}
