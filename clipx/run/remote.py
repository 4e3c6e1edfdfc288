"""Remote checkpoint storage (train.copy_to): upload, prune, restore.

<train.copy_to>/<name>/s<seed>/ has the layout of the run directory: config.yaml, HISTORY and checkpoints/step_XXXXXXXX.
A checkpoint's checkpoint.json is uploaded last; a copy without it is incomplete and ignored.
"""

import json
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.errors import Fault, UserError, one_line
from clipx.run import checkpoint, directory
from clipx.run.checkpoint import MANIFEST, STEP_FOLDER, checkpoints, step_of
from clipx.run.log import WANDB_ID
from clipx.run.retention import RetentionPolicy
from clipx.utils.files import new_folder, write_text

HISTORY = ("log.jsonl", WANDB_ID, "environment.json", directory.OUTCOME)  # restored with a checkpoint


class RemoteCheckpointStore:
    """The remote copy of a run directory, on any file system that fsspec supports."""

    def __init__(self, config: RunConfig, run: Path, fs: Any, root: str) -> None:
        self.config, self.run = config, run
        self.fs, self.root = fs, root
        self.policy = RetentionPolicy(config)

    def upload(self, path: Path) -> None:
        """Upload config.yaml, a checkpoint folder and the HISTORY files. Skip a checkpoint whose remote copy is equal.

        Raises whatever the file system raises.
        """
        self.fs.makedirs(self.root, exist_ok=True)
        # first, because `restore` compares the settings before it uses a checkpoint
        self.fs.put_file(str(self.run / "config.yaml"), f"{self.root}/config.yaml")
        self._upload_checkpoint(path)
        for name in HISTORY:
            if (self.run / name).exists():
                self.fs.put_file(str(self.run / name), f"{self.root}/{name}")
            elif self.fs.exists(f"{self.root}/{name}"):  # outcome.json of a run that was resumed
                self.fs.rm_file(f"{self.root}/{name}")

    def prune(self, newest: Path) -> None:
        """Delete remote checkpoints that are not kept, given the newest checkpoint of the run.

        These are checkpoints later than the newest (the run has resumed from an earlier one), incomplete copies of a
        killed run, and checkpoints that the retention policy drops. Raises whatever the file system raises.
        """
        metrics = {step: found for step, found in self._metrics().items() if step <= step_of(newest)}
        for step in self._steps() - self.policy.retained(metrics):
            self.fs.rm(self._remote_path(step), recursive=True)

    def _upload_checkpoint(self, path: Path) -> None:
        target = self._remote_path(step_of(path))
        manifest = f"{target}/{MANIFEST}"
        self.fs.invalidate_cache()
        self.fs.makedirs(target, exist_ok=True)
        if self.fs.exists(manifest):
            if self.fs.cat_file(manifest) == (path / MANIFEST).read_bytes():  # it has the SHA-256 of all files
                return
            self.fs.rm_file(manifest)
        for file in sorted(path.iterdir(), key=lambda file: file.name == MANIFEST):
            self.fs.put_file(str(file), f"{target}/{file.name}")

    def restore(self) -> list[str]:
        """Download the newest undamaged copy, unless the run directory has an undamaged checkpoint that is as new.

        So a run continues on a machine with an older run directory. Returns lines for the log.

        Raises UserError: the copies belong to a run with other settings. Raises Fault: the storage or the newest local
        checkpoint cannot be read.
        """
        local, notes = -1, list[str]()
        try:
            if copies := self._metrics():
                local = self._newest_good_step()
            steps = sorted((step for step in copies if step > local), reverse=True)
            if steps:
                self._refuse_other_settings()
            for step in steps:
                try:
                    self._download(step, replace=local >= 0)
                except UserError as error:
                    notes.append(f"skipped: {error}")
                    continue
                found = "no good checkpoint" if local < 0 else f"no good checkpoint after step {local}"
                return [*notes, f"{self.run} had {found}: restored the copy {self._remote_path(step)}"]
        except (UserError, Fault):
            raise
        except Exception as error:  # every file system has its own error types
            # not from an older local checkpoint: the next upload would delete the newer copies
            raise Fault(f"train.copy_to: {self.root} cannot be read: {one_line(error)}") from error
        return notes

    def _newest_good_step(self) -> int:
        """Return the step of the newest local checkpoint that is not damaged; -1 if there is none."""
        for path in reversed(checkpoints(self.run)):
            with suppress(UserError):
                checkpoint.verify(path)
                return step_of(path)
        return -1

    def _remote_path(self, step: int) -> str:
        return f"{self.root}/{checkpoint.folder(Path(), step).as_posix()}"

    def _steps(self) -> set[int]:
        """Return the steps of all copies, including incomplete ones."""
        self.fs.invalidate_cache()
        try:  # no call of `exists`, which is also False if the storage does not answer
            names = [Path(path).name for path in self.fs.ls(f"{self.root}/checkpoints", detail=False)]
        except FileNotFoundError:
            return set()
        return {step_of(Path(name)) for name in names if STEP_FOLDER.fullmatch(name)}

    def _metrics(self) -> dict[int, dict[str, float]]:
        """Return step -> metrics, of complete copies."""
        metrics = {}
        for step in self._steps():
            try:
                manifest = self.fs.cat_file(f"{self._remote_path(step)}/{MANIFEST}")
                metrics[step] = json.loads(manifest).get("metrics", {})
            except (FileNotFoundError, ValueError):  # incomplete or truncated
                continue
        return metrics

    def _download(self, step: int, replace: bool) -> None:
        """Download a checkpoint and missing HISTORY files; `replace`: all of them.

        Raises UserError: the copy is corrupt.
        """
        with new_folder(checkpoint.folder(self.run, step)) as temporary:
            for path in self.fs.ls(self._remote_path(step), detail=False):
                self.fs.get_file(path, str(temporary / Path(path).name))
            checkpoint.verify(temporary)
            history = {}
            for name in HISTORY:  # read here, so that an error leaves the run directory as it is
                with suppress(FileNotFoundError):
                    history[name] = self.fs.cat_file(f"{self.root}/{name}").decode()
            shutil.rmtree(checkpoint.folder(self.run, step), ignore_errors=True)  # damaged, else it would be resumed
        for name in HISTORY:
            if replace:
                (self.run / name).unlink(missing_ok=True)
            if name in history and not (self.run / name).exists():
                write_text(self.run / name, history[name])

    def _refuse_other_settings(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.fs.get_file(f"{self.root}/config.yaml", f"{folder}/config.yaml")
            directory.refuse_changes(directory.read_config(Path(folder)), self.config, f"train.copy_to: {self.root}")


def open_remote_store(config: RunConfig, run: Path) -> RemoteCheckpointStore | None:
    """Open the store of train.copy_to; None without that setting, and on all ranks but 0.

    Raises UserError: the URL cannot be used.
    """
    url = config.train.copy_to
    if url is None or distributed.rank() > 0:
        return None
    from fsspec.core import url_to_fs

    try:
        fs, root = url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:  # unknown protocol, or its package is not installed
        raise UserError(f"train.copy_to={url} cannot be used: {one_line(error)}") from error
    return RemoteCheckpointStore(config, run, fs, f"{root.rstrip('/')}/{config.name}/s{config.seed}")
