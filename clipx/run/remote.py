"""The second place of checkpoints, train.copy_to: what lies there, bringing one there, getting one back.

<train.copy_to>/<name>/s<seed>/ is laid out as the run directory: FILES and checkpoints/step_XXXXXXXX, whose
checkpoint.json is uploaded last; a copy without it is incomplete and ignored.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.errors import UserError, one_line
from clipx.run import checkpoint as state
from clipx.run import directory, retention
from clipx.run.checkpoint import MANIFEST, NAME, checkpoints, step_of
from clipx.run.log import WANDB_ID
from clipx.utils.files import new_folder, write_text

HISTORY = ("log.jsonl", WANDB_ID, "environment.json", directory.OUTCOME)  # what a run that comes back goes on with
FILES = ("config.yaml", *HISTORY)


class RemoteCheckpointStore:
    """A run's folder on any file system that fsspec knows."""

    def __init__(self, config: RunConfig, run: Path, fs: Any, root: str) -> None:
        self.config, self.run = config, run
        self.fs, self.root = fs, root
        self.policy = retention.policy(config)

    def put(self, checkpoint: Path) -> None:
        """Copies a checkpoint there, unless it is there, and FILES as they are now; removes what does not stay.

        Raises whatever the file system raises.
        """
        self._put_checkpoint(checkpoint)
        for name in FILES:
            if (self.run / name).exists():
                self.fs.put_file(str(self.run / name), f"{self.root}/{name}")
            elif self.fs.exists(f"{self.root}/{name}"):  # outcome.json of a run that goes on
                self.fs.rm_file(f"{self.root}/{name}")
        # Removes later steps (written before the run fell back to an earlier checkpoint) and incomplete copies (cut
        # off by a kill).
        found = {step: measured for step, measured in self._found().items() if step <= step_of(checkpoint)}
        for step in self._steps() - self.policy.retained(found):
            self.fs.rm(self._copy(step), recursive=True)

    def _put_checkpoint(self, checkpoint: Path) -> None:
        target = self._copy(step_of(checkpoint))
        manifest = f"{target}/{MANIFEST}"
        self.fs.invalidate_cache()
        self.fs.makedirs(target, exist_ok=True)
        if self.fs.exists(manifest):
            if self.fs.cat_file(manifest) == (checkpoint / MANIFEST).read_bytes():  # it has the others' digests
                return
            self.fs.rm_file(manifest)
        for file in sorted(checkpoint.iterdir(), key=lambda file: file.name == MANIFEST):
            self.fs.put_file(str(file), f"{target}/{file.name}")

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
                    return [*notes, f"{self.run} had no checkpoint: took the copy {self._copy(step)}"]
                notes.append(f"passed over: {problem}")
        except UserError:
            raise
        except Exception as error:  # every file system has its own kinds
            raise UserError(f"train.copy_to: {self.root} cannot be read: {one_line(error)}") from error
        return notes

    def _copy(self, step: int) -> str:
        return f"{self.root}/{state.folder(Path(), step).as_posix()}"

    def _steps(self) -> set[int]:
        """Steps of all copies, also of incomplete ones."""
        self.fs.invalidate_cache()
        folder = f"{self.root}/checkpoints"
        names = [Path(place).name for place in self.fs.ls(folder, detail=False)] if self.fs.exists(folder) else []
        return {step_of(Path(name)) for name in names if NAME.fullmatch(name)}

    def _found(self) -> dict[int, dict[str, float]]:
        """Steps of whole copies, and what was measured at them."""
        found = {}
        for step in self._steps():
            manifest = f"{self._copy(step)}/{MANIFEST}"
            try:
                if self.fs.exists(manifest):
                    found[step] = json.loads(self.fs.cat_file(manifest)).get("metrics", {})
            except ValueError:  # cut short
                continue
        return found

    def _fetch(self, step: int) -> str:
        """Nothing for a good one, now in the run directory, else what is wrong with it."""
        path = state.folder(self.run, step)
        try:
            with new_folder(path) as made:
                for place in self.fs.ls(self._copy(step), detail=False):
                    self.fs.get_file(place, str(made / Path(place).name))
                state.verify(made)
        except UserError as error:
            return str(error)
        for name in HISTORY:
            if not (self.run / name).exists() and self.fs.exists(f"{self.root}/{name}"):
                write_text(self.run / name, self.fs.cat_file(f"{self.root}/{name}").decode())
        return ""

    def _refuse_other_settings(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.fs.get_file(f"{self.root}/config.yaml", f"{folder}/config.yaml")
            directory.refuse_changes(directory.load_config(Path(folder)), self.config, f"train.copy_to: {self.root}")


def open_remote_store(config: RunConfig, run: Path) -> RemoteCheckpointStore | None:
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
        raise UserError(f"train.copy_to={url} cannot be used: {one_line(error)}") from error
    return RemoteCheckpointStore(config, run, fs, f"{root.rstrip('/')}/{config.name}/s{config.seed}")
