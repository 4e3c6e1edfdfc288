"""Run logging: progress bar, log.jsonl, W&B, TensorBoard."""

import json
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.errors import one_line
from clipx.run.folder import LOG, WANDB_ID, RunFolder, rows_of
from clipx.run.log_writers import numbers, open_tensorboard, start_wandb
from clipx.utils.files import write_text
from clipx.utils.terminal import ProgressBar
from clipx.utils.trust import is_permitted

EARLIER = "log.earlier.jsonl"  # the log of a run that was started again
NOTIFY_SECONDS = 60  # after which log.notify is stopped


class RunLog:
    """Log of a run. Only rank 0 writes. A resumed run drops the lines after its checkpoint."""

    def __init__(self, config: RunConfig, run: Path, step: int, total_steps: int) -> None:
        self.active = distributed.rank() == 0
        self.path = run / LOG
        self.total_steps = total_steps
        self.command = config.log.notify
        self.bar = ProgressBar(self.active, transient=False)
        self.bar.start("step", total_steps, step)
        # the last step whose lines stay; -1: the run starts again, because it has no checkpoint
        last = step if step or RunFolder(run).checkpoints else -1
        diverged = self.active and RunFolder(run).divergence() is not None  # it repeats no steps
        if self.active and not diverged:
            _cut_after(self.path, last)
        self.wandb = _start_wandb(config, run) if self.active and config.log.wandb != "off" else None
        writes_events = self.active and config.log.tensorboard and not diverged
        self.tensorboard = open_tensorboard(run / "tensorboard", last) if writes_events else None

    def __enter__(self) -> "RunLog":
        self.bar.__enter__()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.bar.__exit__()
        if self.tensorboard:
            self.tensorboard.close()
        if self.wandb:
            self.wandb.finish(exit_code=0 if error_type is None else 1)

    def info(self, text: str) -> None:
        """Print a line for the user."""
        self.bar.print(text)

    def notify(self, message: str) -> None:
        """Run log.notify and give it the message on stdin. Do not run a command that the user has not typed.

        A command that fails does not stop the run: its error is printed.
        """
        if not self.active or self.command is None:
            return
        if not is_permitted("programs", self.command):  # it comes from config.yaml
            self.info(f"log.notify={self.command} is not run, because it is not on the command line")
            return
        try:
            subprocess.run(
                self.command, shell=True, input=f"{message}\n", text=True, check=True, timeout=NOTIFY_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            self.info(f"log.notify failed: {one_line(error)}")

    def record(self, step: int, row: Mapping[str, Any]) -> None:
        """Append a line to log.jsonl and the other logs, unless the row is empty; `step`: number of steps done."""
        if not self.active or not row:
            return
        line = json.dumps({"step": step, **row, "time": datetime.now(UTC).isoformat(timespec="seconds")})
        line = json.dumps(json.loads(line, parse_constant=lambda _: None))  # JSON has no NaN and no infinity: null
        try:
            with self.path.open("a") as file:  # closed after each line, so that a killed run loses no line
                file.write(f"{line}\n")
        except OSError as error:  # a full disk: the system names no file
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        if self.wandb:
            # no step=, because with it W&B drops the steps that a resumed run repeats
            self.wandb.log({"step": step, **row})
        if self.tensorboard:
            for name, value in numbers(row):
                self.tensorboard.add_scalar(name, value, step)

    def step(self, step: int, row: Mapping[str, Any]) -> None:
        """Record a training step and show it in the progress bar, or as a line if stderr is not a terminal."""
        status = f"loss {row['loss']:.3f}  tau {row['tau']:.4f}  {row['images_per_s']:.0f} images/s"
        self.bar.show(step, status)
        left = self.bar.seconds_left(step)
        progress = {"progress": round(step / self.total_steps, 4), "left_s": None if left is None else round(left, 1)}
        self.record(step, {**row, **progress})

    def evaluation(self, step: int, scores: dict[str, float]) -> None:
        """Record evaluation metrics as a separate line and print their mean."""
        if scores:
            self.record(step, {"evaluation": scores})
            self.info(f"step {step}  evaluation {sum(scores.values()) / len(scores):.3f}")

    def has_evaluation(self, step: int) -> bool:
        """Return True if log.jsonl has an evaluation of this step; collective, rank 0 reads the file."""
        found = self.active and any("evaluation" in row and row["step"] == step for row in rows_of(self.path))
        return distributed.broadcast_object(found)


def _cut_after(path: Path, last: int) -> None:
    """Remove lines after the step `last`, and a last line truncated by a kill; if `last` is -1, move all to EARLIER."""
    if not path.exists():
        return
    kept = [json.dumps(row) + "\n" for row in rows_of(path) if row["step"] <= last]
    if last < 0 and path.stat().st_size:
        path.replace(path.with_name(EARLIER))
    elif "".join(kept).encode() != path.read_bytes():
        write_text(path, "".join(kept))


def _start_wandb(config: RunConfig, run: Path) -> Any:
    """Start or resume the W&B run of this run directory; its id is stored there, because run names may repeat."""
    id_file = run / WANDB_ID
    if not id_file.is_file():
        write_text(id_file, secrets.token_hex(8))
    started = start_wandb(
        "log.wandb",
        config.log.wandb,
        project=config.log.project,
        name=f"{config.name}-s{config.seed}",
        group=config.name,  # the seeds of an arm
        tags=[tag for tag in (config.recipe, config.arm) if tag],
        id=id_file.read_text().strip(),
        resume="allow",
        dir=run,
        config=asdict(config),
    )
    started.define_metric("step")
    started.define_metric("*", step_metric="step")
    return started
