"""The run directory `<runs>/<name>/s<seed>/`. Resume, eval and report read only its config.yaml, not the recipe."""

import copy
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from clipx import distributed
from clipx.config.schema import ARM_PREFIX, PUBLISHED_PREFIXES, RunConfig
from clipx.config.setting import check, settings_of
from clipx.errors import UserError
from clipx.run.checkpoint import checkpoints, resolve
from clipx.utils.files import write_text
from clipx.utils.plugins import load_plugins

OUTCOME = "outcome.json"


@dataclass(frozen=True)
class Diverged:
    """End of a run after train.max_bad_steps steps in a row without a finite loss and gradient."""

    step: int  # steps done, skipped ones included
    bad_steps: int  # number of consecutive skipped steps at the end
    checkpoint: str | None  # path of the last good checkpoint, relative to the run directory
    outcome: str = "diverged"

    def message(self, run: Path) -> str:
        """Return one line for the user."""
        kept = f"its last good checkpoint is {run / self.checkpoint}" if self.checkpoint else "it has no checkpoint yet"
        return (
            f"{run} diverged at step {self.step}: {self.bad_steps} steps in a row without a finite loss and gradient; "
            f"{kept}. To train it again from the start, remove {run}, and its remote copy if train.copy_to is set"
        )


def run_directory(config: RunConfig) -> Path:
    """Return the run directory of a config."""
    return Path(config.runs) / config.name / f"s{config.seed}"


def other_run(config: RunConfig, name: str) -> Path:
    """Return the path of another run or checkpoint.

    `name` is this path, or arm:NAME for the run of that arm with the same recipe, seed and overrides as `config`.
    """
    arm = name.removeprefix(ARM_PREFIX)
    if arm == name:
        return Path(name)
    return Path(config.runs) / name_of_arm(arm, config.recipe, config.arm, config.name) / f"s{config.seed}"


def name_of_arm(other: str, recipe: str, arm: str, name: str) -> str:
    """Return the name of the run of the arm `other` with the same overrides as the run `name` of `arm`.

    If the user chose `name`, it does not show the overrides, and the result is the name of `other` without overrides.
    """
    default = f"{recipe}-{arm}" if arm else recipe
    overrides = name.removeprefix(default) if name.startswith(default) else ""
    return f"{recipe}-{other}{overrides}"


def earlier_runs(config: RunConfig) -> list[Path]:
    """Return the paths of the runs or checkpoints that a run needs for model.init and model.teacher."""
    names = [config.model.init, config.model.teacher]
    return [other_run(config, name) for name in names if name and not name.startswith(PUBLISHED_PREFIXES)]


def other_checkpoint(config: RunConfig, key: str, name: str) -> Path:
    """Return the checkpoint of another run; `key` is the setting that holds `name`.

    Raises UserError: the run has no checkpoint; for arm:NAME the message has the command that trains the run.
    """
    run = other_run(config, name)
    if not run.exists() and name.startswith(ARM_PREFIX):
        first = f"clipx train recipe={config.recipe} arm={name.removeprefix(ARM_PREFIX)} seed={config.seed}"
        raise UserError(f"{key}={name}: {run} does not exist; train it first, with the same other arguments: {first}")
    return resolve(run, key)


def create(config: RunConfig) -> Path:
    """Write the config into its run directory and return the directory.

    Raises UserError: the directory holds a run with other settings; the message lists them, old -> new.
    """
    run = run_directory(config)
    if (run / "log.jsonl").exists() or (run / "checkpoints").exists():  # else no step was done yet
        refuse_changes(read_config(run), config, str(run))
    write_text(run / "config.yaml", OmegaConf.to_yaml(OmegaConf.structured(config)))
    return run


def refuse_changes(old: RunConfig, config: RunConfig, where: str) -> None:
    """Raise UserError if settings that determine the results differ; the message lists them, old -> new."""
    values = ((key, attrgetter(key)(old), attrgetter(key)(config)) for key in identity_keys())
    changed = [f"{key}: {before} -> {now}" for key, before, now in values if before != now]
    if changed:
        raise UserError(
            f"{where} already holds a run with other settings ({'; '.join(changed)}): "
            "give this one another name=, or remove that directory"
        )


def load_config(run: Path) -> RunConfig:
    """Read the config of a run directory, and load its plug-ins.

    Raises UserError: config.yaml is missing or unreadable, a value is not allowed, or a plug-in cannot be imported.
    """
    config = read_config(run)
    try:
        load_plugins(config.plugins)
        check(config)
    except UserError as error:
        raise UserError(f"{run / 'config.yaml'}: {error}") from error
    return config


def read_config(run: Path) -> RunConfig:
    """Read the config of a run directory without checking its values. Raises UserError: it is missing or unreadable."""
    path = run / "config.yaml"
    if not path.is_file():
        raise UserError(f"{run} is not a run directory (it has no config.yaml)")
    status = path.stat()
    return copy.deepcopy(_parse(path, status.st_mtime_ns, status.st_ino))


@lru_cache(maxsize=256)
def _parse(path: Path, mtime_ns: int, inode: int) -> RunConfig:
    """Parse a config, once per version of its file, because an evaluation reads the config several times."""
    try:
        merged = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.load(path))
        config = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    assert isinstance(config, RunConfig)
    return config


def record_divergence(run: Path, step: int, bad_steps: int) -> Diverged:
    """Write outcome.json on rank 0; all ranks call this."""
    found = checkpoints(run)
    diverged = Diverged(step, bad_steps, f"checkpoints/{found[-1].name}" if found else None)
    if distributed.rank() == 0:
        write_text(run / OUTCOME, json.dumps(asdict(diverged)) + "\n")
    return diverged


def read_divergence(run: Path) -> Diverged | None:
    """Read outcome.json; None if the run has not diverged. Raises UserError: the file is corrupt."""
    if not (run / OUTCOME).is_file():
        return None
    try:
        return Diverged(**json.loads((run / OUTCOME).read_text()))
    except (ValueError, TypeError) as error:
        raise UserError(f"{run / OUTCOME} is corrupt: remove it, then run the same command to resume") from error


def identity_keys() -> list[str]:
    """Return the dotted keys of all settings that determine the results of a run."""
    return [key for key, declared in settings_of(RunConfig).items() if not declared.resumable]
