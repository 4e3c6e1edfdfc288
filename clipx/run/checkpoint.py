"""Checkpoints: safetensors, and a training state for torch.load(weights_only=True), so that loading executes no code.

checkpoints/step_00000100/ holds

    model.safetensors   weights of the model
    training.pt         states of optimizer (train.keep_optimizer=false: not after the last step), objective, GradScaler
    table.safetensors   whole per-sample columns, if the objective has any
    ema.safetensors     averaged weights, with train.ema
    checkpoint.json     step, data fingerprint, metrics, and the SHA-256 of the other files

A folder is written under a temporary name and then renamed, so it is always complete.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clipx.config.schema import RunConfig
from clipx.data.sampler import Sampler, pairs_of
from clipx.errors import Fault, UserError, one_line, prefixed
from clipx.types import Progress
from clipx.utils.trust import load_json

if TYPE_CHECKING:  # slow: a report, for example, loads no weights
    from torch import Tensor, nn

    from clipx.models.clip import ClipModel

WEIGHTS, TRAINING, MANIFEST = "model.safetensors", "training.pt", "checkpoint.json"
TABLE, AVERAGED = "table.safetensors", "ema.safetensors"
STEP_FOLDER = re.compile(r"step_([0-9]{8,})")  # name of a checkpoint folder; other files in checkpoints/ are ignored
BEST = "best"  # link in checkpoints/ to the best checkpoint
IN_USE = (errno.ENOTEMPTY, errno.EBUSY, errno.ESTALE)  # errors of removing a folder whose files are being read
UNFINISHED = re.compile(rf"\.{STEP_FOLDER.pattern}\..+")  # temporary folder left behind by a killed run


def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoint folders of a run in ascending order of step; file times are ignored."""
    return sorted(_folders(run, STEP_FOLDER), key=step_of)


def remove_leftovers(run: Path, step: int) -> None:
    """Delete checkpoints later than the one just saved (`step`), and unfinished folders of killed runs.

    The later ones are corrupt, else the run would have resumed from them.
    """
    later = [path for path in checkpoints(run) if step_of(path) > step]
    remove([*later, *_folders(run, UNFINISHED)])


def remove(folders: Iterable[Path]) -> None:
    """Delete folders; leave one that is still in use to the next clean-up.

    On NFS, a folder cannot be removed while a process of this machine reads a file in it, such as `clipx eval`.
    """
    for path in folders:
        try:
            shutil.rmtree(path)
        except OSError as error:
            if error.errno not in IN_USE:
                raise


def folder(run: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return run / "checkpoints" / f"step_{step:08d}"


def run_of(checkpoint: Path) -> Path:
    """Return the run directory of a checkpoint folder."""
    return checkpoint.parent.parent


def step_of(checkpoint: Path) -> int:
    """Return the step in the name of a checkpoint folder."""
    match = STEP_FOLDER.fullmatch(checkpoint.name)
    assert match, f"{checkpoint} is no checkpoint folder"
    return int(match[1])


def _folders(run: Path, name: re.Pattern[str]) -> list[Path]:
    try:
        # scandir, because glob may return nothing for a folder that cannot be read at present
        with os.scandir(run / "checkpoints") as entries:
            return [Path(entry.path) for entry in entries if name.fullmatch(entry.name) and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_metrics(checkpoint: Path) -> dict[str, float]:
    """Return the metrics in a checkpoint's manifest; {} if it is missing or corrupt. Raises OSError."""
    try:
        metrics = load_json((checkpoint / MANIFEST).read_text()).get("metrics", {})
        return {str(name): float(value) for name, value in metrics.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError, OverflowError):
        return {}


def resolve(path: Path, key: str = "checkpoint") -> Path:
    """Return the checkpoint folder at `path`, or the last one if `path` is a run directory.

    `key` is the setting that holds the path. A link (checkpoints/best) is followed.

    Raises UserError: the path is neither a checkpoint folder nor a run directory with checkpoints.
    """
    if (path / MANIFEST).is_file():
        named = path.parent / path.readlink() if path.is_symlink() else path
        return named if len(named.parts) > 1 else named.absolute()  # its parents give the run
    if STEP_FOLDER.fullmatch(path.name) and path.is_dir():
        raise UserError(f"{key}={path} is no complete checkpoint: it has no {MANIFEST}; give another one of the run")
    found = checkpoints(path)
    if not found:
        if (path / "config.yaml").is_file():
            raise UserError(f"{key}={path} has no checkpoint: train the run, or restore its checkpoints")
        kind = "a file" if path.is_file() else "a folder without checkpoints" if path.is_dir() else "missing"
        below = sorted(folder.parent for folder in path.glob("*/checkpoints"))
        example = f", such as {below[0]}" if below else ""
        raise UserError(f"{key}={path} is {kind}: give a run directory{example}, or its checkpoints/step_* folder")
    return found[-1]


def verify(path: Path, only: str = "") -> dict[str, Any]:
    """Check that the files of a checkpoint (or `only` one) have the SHA-256 of its manifest, and return the manifest.

    Raises UserError: a file is missing or corrupt; the message names it. Raises Fault: a file cannot be read at
    present, so the checkpoint may be good.
    """
    try:
        manifest = read_manifest(path)
        for name, digest in manifest["sha256"].items():
            if only in ("", name) and file_sha256(path / name) != digest:
                raise UserError(f"{path / name} is corrupt or was changed: its SHA-256 differs from {MANIFEST}")
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing") from error
    except OSError as error:
        advice = "run the same command again later, or delete this folder to resume from the checkpoint before it"
        raise Fault(f"{path} cannot be read: {error.strerror}; {advice}") from error
    return manifest


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint. Raises UserError: it is missing or corrupt. Raises OSError."""
    try:
        manifest: dict[str, Any] = load_json((path / MANIFEST).read_text())
        digests = manifest["sha256"]
        step, _ = manifest["step"], (manifest["data"], digests[WEIGHTS], digests[TRAINING])  # raises if one is missing
        if type(step) is not int or step < 0:
            raise ValueError(f"step={step!r} is no number of steps")
        if outside := [name for name in digests if Path(name).name != name]:
            raise ValueError(f"{outside[0]} is outside the checkpoint")
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{path / MANIFEST} cannot be read: {one_line(error)}") from error
    return manifest


def refuse_other_data(path: Path, trained_on: str, now: str) -> None:
    """Raise UserError if the fingerprint of the data has changed since a run or checkpoint was trained on them."""
    if trained_on != now:
        raise UserError(
            f"{path} was trained on other data (fingerprint {trained_on}, now {now}): resuming needs the same data; "
            "give the new run another name="
        )


def progress_of(path: Path, config: RunConfig) -> Progress:
    """Return the progress at the last step before a checkpoint of a run, for its temperature schedule.

    Without a schedule, tau does not depend on the progress, and the result is a constant. Raises UserError: the
    manifest is missing or corrupt.
    """
    from clipx.models.temperature import PATHS

    if config.temperature.kind not in PATHS:
        return Progress(step=0, total_steps=0, epoch=0, total_epochs=0)
    manifest = read_manifest(path)
    pairs = pairs_of(manifest["data"]) or config.data.num_samples
    if pairs is None:
        raise UserError(f"{path / MANIFEST}: data={manifest['data']} has no number of pairs; restore it from a copy")
    sampler = Sampler(pairs, config.train, config.seed, rank=0, world_size=1, held_out=config.data.held_out)
    return sampler.progress(max(manifest["step"] - 1, 0))


def chosen_weights(path: Path, averaged: bool) -> str:
    """Return the file name of a checkpoint's weights: averaged, or those of its step.

    Raises UserError: the checkpoint has no averaged weights.
    """
    if averaged and not (path / AVERAGED).is_file():
        raise UserError(f"ema=true: {path} holds no averaged weights; a run keeps them with train.ema=DECAY")
    return AVERAGED if averaged else WEIGHTS


def load_weights(model: "ClipModel", path: Path, name: str = WEIGHTS) -> None:
    """Load weights of a checkpoint folder into a model: `WEIGHTS`, those of its step, or `AVERAGED`.

    A model without adapters (model.SIDE.lora) gets weights with which those of the checkpoint are merged.

    Raises UserError: the file is missing, unreadable or of another model, or frozen towers have changed.
    """
    from clipx.models.towers import lora

    check_towers(model, path)
    weights = _read(path / name) if lora.adapted(model.state_dict()) else read_weights(path, name)
    set_weights(model, weights, path / name)


def check_towers(model: "ClipModel", path: Path) -> None:
    """Raise UserError if a checkpoint was trained on features of other frozen towers than the model's."""
    then = read_manifest(path).get("frozen", {})
    for side, tower in model.frozen_towers.items():
        if then.get(side) != tower.digest:
            raise UserError(
                f"{path} was trained on features of another {side} tower than {tower.name} as it is now: its weights, "
                "preprocessing or tokenizer have changed; restore them, or train anew"
            )


def read_weights(path: Path, name: str = WEIGHTS) -> dict[str, "Tensor"]:
    """Read weights of a checkpoint folder, with adapters merged. Raises UserError: no file, or an unreadable one."""
    from clipx.models.towers import lora

    with prefixed(f"{path / name} cannot be read"):
        return lora.merged(_read(path / name))


def _read(file: Path) -> dict[str, "Tensor"]:
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except Exception as error:  # a missing file, or the error type of safetensors
        raise UserError(f"{file} cannot be read: {one_line(error)}") from error


def set_weights(model: "nn.Module", weights: Mapping[str, "Tensor"], file: Path) -> None:
    """Copy the weights of a file into a model. Raises UserError: they are of another model."""
    own = model.state_dict()
    for key in sorted(own.keys() | weights.keys()):
        expected, given = (list(tensors[key].shape) if key in tensors else "none" for tensors in (own, weights))
        if expected != given:
            raise UserError(f"{file} is of another model: {key} has shape {given} there, {expected} in this run")
        if own[key].is_floating_point() != weights[key].is_floating_point():
            kinds = f"{key} is {weights[key].dtype} there, {own[key].dtype} in this run"
            raise UserError(f"{file} is of another model: {kinds}")
    model.load_state_dict(dict(weights))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
