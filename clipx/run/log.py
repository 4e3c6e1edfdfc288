"""What a run tells: a progress bar for the person, log.jsonl for the report, wandb on request."""

import json
import math
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.utils.files import write_text

WANDB_MODES = ("off", "offline", "online")
WANDB_ID = "wandb_id"  # in the run directory: what W&B resumes by


class RunLog:
    """Rank 0 writes, the others keep silent. A resumed run drops the lines after its checkpoint."""

    def __init__(self, config: RunConfig, run: Path, step: int, total_steps: int) -> None:
        if config.log.wandb not in WANDB_MODES:
            raise UserError(f"log.wandb={config.log.wandb} is not known; allowed: {', '.join(WANDB_MODES)}")
        self.active = distributed.rank() == 0
        self.console = Console(stderr=True, quiet=not self.active)
        self.path = run / "log.jsonl"
        self.bar = Progress(
            TextColumn(f"{config.name}/s{config.seed}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            disable=not sys.stderr.isatty(),
        )
        self.task = self.bar.add_task("", total=total_steps, completed=step, status="")
        if self.active:
            _cut_after(self.path, step)
        self.wandb = _start_wandb(config, run) if self.active and config.log.wandb != "off" else None

    def __enter__(self) -> "RunLog":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
        if self.wandb:
            self.wandb.finish(exit_code=0 if kind is None else 1)

    def info(self, text: str) -> None:
        """A line for the person."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def record(self, step: int, row: Mapping[str, Any]) -> None:
        """One line of log.jsonl, unless the row is empty; `step` counts the steps done. A kill loses none.

        Numbers that are not finite are null there, as JSON has none.
        """
        if not self.active or not row:
            return
        with self.path.open("a") as file:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            file.write(json.dumps(_finite({"step": step, **row, "time": now}), allow_nan=False) + "\n")
        if self.wandb:
            self.wandb.log({"step": step, **row})  # not step=: a resumed run goes back, which W&B would drop

    def step(self, step: int, row: Mapping[str, Any]) -> None:
        """Records a training step and shows it."""
        self.record(step, row)
        status = f"loss {row['loss']:.3f}  tau {row['tau']:.4f}  {row['images_per_s']:.0f} images/s"
        self.bar.update(self.task, completed=step, status=status)
        if self.bar.disable:
            self.info(f"step {step}/{int(self.bar.tasks[0].total or 0)}  {status}")

    def evaluation(self, step: int, scores: dict[str, float]) -> None:
        """Records accuracies in a line of their own, and shows their mean."""
        if scores:
            self.record(step, {"evaluation": scores})
            self.info(f"step {step}  evaluation {sum(scores.values()) / len(scores):.3f}")

    def has_evaluation(self, step: int) -> bool:
        """Whether log.jsonl has accuracies for that step; all ranks ask, rank 0 looks."""
        found = self.active and any("evaluation" in row and row["step"] == step for row in _rows(self.path))
        return distributed.broadcast_object(found)


def _cut_after(path: Path, step: int) -> None:
    """Removes lines of steps that will be done again, and a last line cut by a kill."""
    if not path.exists():
        return
    kept = [json.dumps(row) + "\n" for row in _rows(path) if row["step"] <= step]
    if "".join(kept) != path.read_text():
        write_text(path, "".join(kept))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines; a kill may have cut the last one."""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield row


def _finite(value: Any) -> Any:
    """The same with None for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value


def _start_wandb(config: RunConfig, run: Path) -> Any:
    import wandb

    started = wandb.init(
        project=config.log.project,
        name=f"{config.name}-s{config.seed}",
        id=_wandb_id(run),
        resume="allow",
        dir=run,
        mode="online" if config.log.wandb == "online" else "offline",
        config=asdict(config),
    )
    started.define_metric("step")
    started.define_metric("*", step_metric="step")
    return started


def _wandb_id(run: Path) -> str:
    """Of this run directory alone, whatever its name: another one of that name is another run."""
    path = run / WANDB_ID
    if not path.is_file():
        write_text(path, secrets.token_hex(8))
    return path.read_text().strip()
