"""The second place of checkpoints, train.copy_to: what lies there, bringing one there, getting one back.

<train.copy_to>/<name>/s<seed>/ is laid out as the run directory: config.yaml, log.jsonl and checkpoints/step_XXXXXXXX,
whose checkpoint.json comes last, so that a copy without it is none.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from clipx import distributed, retention, runs, state
from clipx.atomic import new_folder, write_text
from clipx.config import RunConfig
from clipx.errors import UserError
from clipx.log import WANDB_ID
from clipx.state import MANIFEST, checkpoints, step_of


class Place:
    """A run's folder on any file system that fsspec knows."""

    def __init__(self, config: RunConfig, run: Path, fs: Any, root: str) -> None:
        self.config, self.run = config, run
        self.fs, self.root = fs, root
        self.policy = retention.policy(config)

    def put(self, checkpoint: Path) -> None:
        """Copies a checkpoint there and removes what does not stay; raises whatever the file system raises."""
        target = f"{self.root}/checkpoints/{checkpoint.name}"
        self.fs.makedirs(target, exist_ok=True)
        if self.fs.exists(f"{target}/{MANIFEST}"):
            self.fs.rm_file(f"{target}/{MANIFEST}")
        for file in sorted(checkpoint.iterdir(), key=lambda file: file.name == MANIFEST):
            self.fs.put_file(str(file), f"{target}/{file.name}")
        for file in (self.run / "config.yaml", self.run / "log.jsonl", self.run / WANDB_ID):
            if file.exists():
                self.fs.put_file(str(file), f"{self.root}/{file.name}")
        # later steps are of before a damaged checkpoint was passed over; what is not whole was cut by a kill
        found = {step: measured for step, measured in self._found().items() if step <= step_of(checkpoint)}
        for step in self._steps() - self.policy.retained(found):
            self.fs.rm(f"{self.root}/checkpoints/step_{step:08d}", recursive=True)

    def restore(self) -> list[str]:
        """Gets the newest good copy where the run directory has no checkpoint; says so.

        Raises:
            UserError: the copies are of a run with other settings, or the place cannot be read.
        """
        if checkpoints(self.run):
            return []
        notes: list[str] = []
        try:
            steps = sorted(self._found(), reverse=True)
            if steps:
                self._refuse_other_settings()
            for step in steps:
                if not (problem := self._fetch(step)):
                    copy = f"{self.root}/checkpoints/step_{step:08d}"
                    return [*notes, f"{self.run} had no checkpoint: took the copy {copy}"]
                notes.append(f"passed over: {problem}")
        except UserError:
            raise
        except Exception as error:  # every file system has its own kinds
            raise UserError(f"train.copy_to: {self.root} cannot be read: {line_of(error)}") from error
        return notes

    def _steps(self) -> set[int]:
        """Steps of all copies, also of those that are not whole."""
        self.fs.invalidate_cache()
        folder = f"{self.root}/checkpoints"
        names = [Path(place).name for place in self.fs.ls(folder, detail=False)] if self.fs.exists(folder) else []
        return {step for name in names if (step := step_of(Path(name))) >= 0}

    def _found(self) -> dict[int, dict[str, float]]:
        """Steps of whole copies, and what was measured at them."""
        found = {}
        for step in self._steps():
            manifest = f"{self.root}/checkpoints/step_{step:08d}/{MANIFEST}"
            try:
                if self.fs.exists(manifest):
                    found[step] = json.loads(self.fs.cat_file(manifest)).get("metrics", {})
            except ValueError:  # cut short
                continue
        return found

    def _fetch(self, step: int) -> str:
        """Nothing for a good one, now in the run directory, else what is wrong with it."""
        path = self.run / "checkpoints" / f"step_{step:08d}"
        try:
            with new_folder(path) as made:
                for place in self.fs.ls(f"{self.root}/checkpoints/{path.name}", detail=False):
                    self.fs.get_file(place, str(made / Path(place).name))
                state.verify(made)
        except UserError as error:
            return str(error)
        for name in ("log.jsonl", WANDB_ID):
            if not (self.run / name).exists() and self.fs.exists(f"{self.root}/{name}"):
                write_text(self.run / name, self.fs.cat_file(f"{self.root}/{name}").decode())
        return ""

    def _refuse_other_settings(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.fs.get_file(f"{self.root}/config.yaml", f"{folder}/config.yaml")
            runs.refuse_changes(runs.load_config(Path(folder)), self.config, f"train.copy_to: {self.root}")


def open_place(config: RunConfig, run: Path) -> Place | None:
    """Where the settings say; None where they say nothing, and on all ranks but 0.

    Raises:
        UserError: a URL that cannot be used.
    """
    url = config.train.copy_to
    if url is None or distributed.rank() > 0:
        return None
    from fsspec.core import url_to_fs

    try:
        fs, root = url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:  # no such protocol, or its package is not installed
        raise UserError(f"train.copy_to={url} cannot be used: {line_of(error)}") from error
    return Place(config, run, fs, f"{root.rstrip('/')}/{config.name}/s{config.seed}")


def line_of(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
