"""RunFolder: a run directory `<runs>/<name>/s<seed>/`, and the one way to read what it holds.

Resume, eval, export and report read only its config.yaml, not the recipe. All values are typed: a file with a value of
another type is named in one line.
"""

import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import OmegaConf

from clipx.config.schema import ARM_PREFIX, PUBLISHED_PREFIXES, REMOVED, RunConfig
from clipx.config.setting import check, from_values, settings_of
from clipx.errors import UserError, one_line, prefixed
from clipx.run import checkpoint
from clipx.utils.files import write_text
from clipx.utils.lock import hold
from clipx.utils.plugins import load_plugins_of_file
from clipx.utils.registry import did_you_mean
from clipx.utils.trust import load_json, load_yaml, refuse_new_root

if TYPE_CHECKING:  # slow: the functions of a run in training import it themselves
    import torch

CONFIG, LOG, ENVIRONMENT, OUTCOME = "config.yaml", "log.jsonl", "environment.json", "outcome.json"
WANDB_ID = "wandb_id"  # holds the id of the run on W&B
WANDB_FOLDER = "wandb"  # W&B writes here
RESULTS, ARTIFACTS = "results.jsonl", "artifacts"  # written by `clipx eval`
TIMING = "timing.json"  # written by `clipx reproduce` after the evaluation
PACKAGES = ("clipx", "torch", "torchvision", "open_clip_torch", "timm", "transformers", "numpy", "pillow")
MARKS = (CONFIG, RESULTS)  # a folder with one of them is a run; published weights have no config
RESTORE, AGAIN = "restore it from a copy", "delete it and evaluate again"
DICTS = dict.fromkeys(("samples", "packages", "init", "teacher", "plugins", "later"), dict)
ENTRIES = {"data": str, "device": str, "processes": int, **DICTS}  # of environment.json, as read
Row = dict[str, Any]  # a line of log.jsonl
NEWEST = 3  # runs that are named where none is given
NESTED = ("geometry", "evaluation", "columns")  # entries of a row with several numbers, by name


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
            f"{kept}. To train it again from the start, remove {run}"
        )


@dataclass(frozen=True)
class RunFolder:
    """A run directory. The config is read once; what training changes is read at each call."""

    path: Path

    @classmethod
    def of(cls, config: RunConfig) -> "RunFolder":
        """Return the run directory of a config."""
        return cls(Path(config.runs) / config.name / f"s{config.seed}")

    @classmethod
    def of_checkpoint(cls, path: Path) -> "RunFolder":
        """Return the run directory of a checkpoint folder."""
        return cls(checkpoint.run_of(path))

    @classmethod
    def create(cls, config: RunConfig) -> "RunFolder":
        """Write the config into its run directory and return the directory.

        Raises UserError: it holds a run with other settings (the message lists them, old -> new) or lost checkpoints.
        """
        run = cls.of(config)
        refuse_links(run.path)
        if (run.path / LOG).exists() or (run.path / "checkpoints").exists():  # else no step was done yet
            run.refuse_changes(config)
            run.refuse_lost_checkpoints()
        write_text(run.path / CONFIG, OmegaConf.to_yaml(OmegaConf.structured(config)))
        return cls.of(config)  # not `run`, which keeps the config of before

    @property
    def has_config(self) -> bool:
        """False for the results of published weights."""
        return (self.path / CONFIG).is_file()

    @cached_property
    def config(self) -> RunConfig:
        """The settings of config.yaml, with defaults for those that it lacks; values have the right type.

        Raises UserError: config.yaml is missing or unreadable, a key is unknown, a value has another type, or a link
        leads out of the run.
        """
        if not self.has_config:
            raise UserError(f"{self.path} is not a run directory (it has no {CONFIG})")
        refuse_links(self.path)
        return _read_config(self.path / CONFIG)

    def load_config(self) -> RunConfig:
        """Load the run's plug-ins and return its config.

        Raises UserError: like `config`, or a value is missing or not allowed, or a plug-in cannot be imported.
        """
        config = self.config
        with prefixed(str(self.path / CONFIG)):
            load_plugins_of_file(config.plugins)
            refuse_new_root(config.data.source, config.data.root)
            check(config)
        return config

    def refuse_changes(self, config: RunConfig) -> None:
        """Raise UserError if `config` changes settings that determine the results; the message lists them."""
        values = ((key, attrgetter(key)(self.config), attrgetter(key)(config)) for key in identity_keys())
        changed = [f"{key}: {before} -> {now}" for key, before, now in values if before != now]
        if changed:
            remedy = "give this one another name=, or remove that directory"
            if any(change.startswith(("train.samples:", "train.epochs:")) for change in changed):
                remedy += f"; to go on from its weights with a new schedule, add model.init={self.path}"
            if [change.partition(":")[0] for change in changed] == ["name"]:
                before = self.path.parent.with_name(self.config.name)
                remedy = f"if you have renamed {self.path.parent}, name it {before} again"
            raise UserError(f"{self.path} already holds a run with other settings ({'; '.join(changed)}): {remedy}")

    def refuse_lost_checkpoints(self) -> None:
        """Raise UserError if the checkpoints are gone: the run saved one or was evaluated, and has not diverged."""
        last = max((row["step"] for row in rows_of(self.path / LOG)), default=0)
        # the first checkpoint may be incomplete until the second is due, which waits for it
        saved = last > 2 * self.config.train.save_every or (self.path / RESULTS).is_file()
        if last and saved and not self.checkpoints and self.divergence() is None:
            raise UserError(
                f"{self.path} was trained to step {last}, but its checkpoints are gone: restore them from a copy; or "
                f"remove {self.path / LOG} and {self.path / RESULTS} to train it again from the start"
            )

    @property
    def log(self) -> list[Row]:
        """One row for each logged step, in ascending order; lines of the same step are merged, the later one wins."""
        by_step: dict[int, Row] = {}
        for row in rows_of(self.path / LOG):
            by_step[row["step"]] = {**by_step.get(row["step"], {}), **row}
        return [by_step[step] for step in sorted(by_step)]

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, commit and devices, see `record_environment`; {} if the run has not started."""
        found = read_object(self.path / ENVIRONMENT, RESTORE)
        for name, kind in ENTRIES.items():
            if not isinstance(value := found.get(name), kind | None):
                raise UserError(f"{self.path / ENVIRONMENT}: {name}={value} has the wrong type; {RESTORE}")
        return found

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoint folders in ascending order of step."""
        return checkpoint.checkpoints(self.path)

    def best_or_last(self) -> tuple[Path, str]:
        """Return the best checkpoint and the reason if the run keeps one (train.keep_best); else the last one and "".

        Raises UserError: there is none.
        """
        best = self.path / "checkpoints" / checkpoint.BEST
        kept = self.config.train.keep_best if best.is_symlink() else None
        return checkpoint.resolve(best if kept else self.path), f"because train.keep_best={kept}" if kept else ""

    def divergence(self) -> Diverged | None:
        """Read outcome.json; None if the run has not diverged. Raises UserError: the file is corrupt."""
        if not (self.path / OUTCOME).is_file():
            return None
        advice = "remove it, then run the same command to resume"
        content = read_object(self.path / OUTCOME, advice)
        try:
            return from_values(Diverged, content)
        except UserError as error:
            raise UserError(f"{self.path / OUTCOME} is corrupt ({error}); {advice}") from error

    def record_divergence(self, step: int, bad_steps: int) -> Diverged:
        """Write outcome.json on rank 0; all ranks call this."""
        found = self.checkpoints
        diverged = Diverged(step, bad_steps, f"checkpoints/{found[-1].name}" if found else None)
        from clipx import distributed

        if distributed.rank() == 0:
            write_text(self.path / OUTCOME, json.dumps(asdict(diverged)) + "\n")
        return diverged

    @property
    def is_evaluated(self) -> bool:
        """True if `clipx reproduce` has trained and evaluated the run; its checkpoints may be deleted."""
        return (self.path / TIMING).is_file()

    @property
    def evaluation_seconds(self) -> float:
        """The duration of the evaluation by `clipx reproduce`; 0 if unknown."""
        seconds = read_object(self.path / TIMING, AGAIN).get("evaluation_seconds", 0.0)
        if not isinstance(seconds, int | float):
            raise UserError(f"{self.path / TIMING}: evaluation_seconds={seconds} is no number; {AGAIN}")
        return float(seconds)

    def remove_unstarted(self) -> None:
        """Remove the run directory if it holds only the settings: training did not start."""
        with suppress(OSError):  # of the last line, if there are runs with other seeds
            if [entry.name for entry in self.path.iterdir()] == [CONFIG]:
                shutil.rmtree(self.path)
                self.path.parent.rmdir()

    def hold(self) -> AbstractContextManager[None]:
        """Return the lock of the run directory: only one process may write its checkpoints and log."""
        instead = "wait for it or stop it, or give this run another name="
        return hold(self.path / "train.lock", f"{self.path} is being trained", instead)


def record_environment(run: Path, device: "torch.device", step: int, more: Mapping[str, Any] | None = None) -> None:
    """Write environment.json of a run: the current environment and the entries of `more`. Only rank 0 calls this.

    When a run resumes at `step`, only the entries that have changed are added, as file["later"]["step_<step>"].
    """
    path = run / ENVIRONMENT
    now = {**_current(device), **(more or {})}
    try:
        known: dict[str, Any] = json.loads(path.read_text()) if step else {}
    except (OSError, ValueError):
        known = {}
    if not known:
        write_text(path, json.dumps(now, indent=1))
        return
    before = {**known, **{key: value for later in known.get("later", {}).values() for key, value in later.items()}}
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    if changed:
        known.setdefault("later", {}).setdefault(f"step_{step}", {}).update(changed)
        write_text(path, json.dumps(known, indent=1))


def _current(device: "torch.device") -> dict[str, Any]:
    import torch

    from clipx import distributed

    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "git_commit": _git("rev-parse", "--verify", "HEAD") or None,
        "git_changes": bool(_git("status", "--porcelain")),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processes": distributed.world_size(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
    }


def _git(*arguments: str) -> str:
    """Run git on the checkout of this code and return its output; "" without git or without a checkout."""
    root = Path(__file__).parents[2]
    if shutil.which("git") is None or not (root / ".git").exists():
        return ""
    result = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return result.stdout.strip()


def refuse_links(run: Path) -> None:
    """Raise UserError if a run has a link that leads out of it, or a pipe or a device.

    Through a link, clipx would write or delete elsewhere, and reading a pipe or a device may never end. W&B's folder
    may have such links, because wandb links a log to the user's cache: clipx does not read this folder.
    """
    inside = run.resolve()
    for folder, below, files in os.walk(run):
        if Path(folder) == run / WANDB_FOLDER:
            below.clear()
            continue
        for path in (Path(folder, name) for name in (*below, *files)):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # another process has removed it meanwhile
                continue
            if stat.S_ISLNK(mode):
                if not _target(path).is_relative_to(inside):
                    raise UserError(
                        f"{path} is a link that leads out of the run, and clipx reads and writes only inside a run: "
                        "replace the link by a copy, or keep the whole run elsewhere and name its folder"
                    )
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UserError(f"{path} is neither a file nor a folder; remove it")


def _target(link: Path) -> Path:
    try:
        return link.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return Path("/")


def run_folders(path: Path) -> Iterator[Path]:
    """Yield the runs at or below `path`. Skip hidden folders and those in a run (checkpoints may have config.yaml)."""
    for name, below, files in os.walk(path):
        if any(mark in files for mark in MARKS):
            yield Path(name)
            below.clear()
        below[:] = [folder for folder in below if not folder.startswith(".")]


def runs_below(paths: Iterable[Path]) -> list[Path]:
    """Return the runs at or below the folders, each once, in natural order."""
    return sorted({run for path in paths for run in run_folders(path)}, key=natural_order)


def newest_runs(wrong: str = "") -> str:
    """Return the runs in runs/ with names near to a wrong one, and the newest, in words; "" if there are no runs."""
    found = sorted(run_folders(Path("runs")), key=lambda run: run.stat().st_mtime, reverse=True)
    near = did_you_mean(wrong, {str(path) for run in found for path in (run, run.parent)})
    return f"; {near}the newest in runs/: {', '.join(map(str, found[:NEWEST]))}" if found else ""


def natural_order(path: Path) -> tuple[str, int, str]:
    """Return a sorting key that puts s2 before s10, and both before copies such as s2_old."""
    digits = path.name[1:]
    return str(path.parent), int(digits) if digits.isdecimal() else sys.maxsize, path.name


def other_run(config: RunConfig, name: str) -> Path:
    """Return the path of another run or checkpoint.

    `name` is this path, or arm:NAME for the run of that arm with the same recipe, seed and overrides as `config`.
    """
    arm = name.removeprefix(ARM_PREFIX)
    if arm == name:
        return Path(name)
    return Path(config.runs) / name_of_arm(arm, config.recipe, config.arm, config.name) / f"s{config.seed}"


def default_name(recipe: str, arm: str) -> str:
    """Return the name of a run without overrides."""
    return "-".join(filter(None, (recipe, arm)))


def name_of_arm(other: str, recipe: str, arm: str, name: str) -> str:
    """Return the name of the run of the arm `other` with the same overrides as the run `name` of `arm`.

    If the user chose `name`, it does not show the overrides, and the result is the name of `other` without overrides.
    """
    default = default_name(recipe, arm)
    overrides = name.removeprefix(default) if name.startswith(f"{default}-") else ""
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
    return checkpoint.resolve(run, key)


def identity_keys() -> list[str]:
    """Return the dotted keys of all settings that determine the results of a run."""
    return [key for key, declared in settings_of(RunConfig).items() if not declared.resumable]


def rows_of(log: Path) -> Iterator[Row]:
    """Yield the rows of a log.jsonl in the order of writing; skip a line that a kill left incomplete."""
    if not log.exists():
        return
    for line in log.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            row = load_json(line)
        except ValueError:
            continue
        if isinstance(row, dict) and type(row.get("step")) is int:
            yield {key: value for key, value in row.items() if _fits(key, value)}


def _fits(key: str, value: Any) -> bool:
    """Return False for a value of a log's row that is not of the kind that clipx writes; such a value is left out."""
    if key not in NESTED:
        return True
    if not isinstance(value, dict):
        return False
    lists = [found if key == "columns" and isinstance(found, list) else [found] for found in value.values()]
    return all(one is None or type(one) in (int, float) for found in lists for one in found)


def read_object(file: Path, advice: str) -> dict[str, Any]:
    """Return the content of a JSON file; {} if it does not exist. Raises UserError, with the advice: it is corrupt."""
    if not file.exists():
        return {}
    try:
        content = load_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is corrupt ({one_line(error)}); {advice}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file} is corrupt (no JSON object); {advice}")
    return content


def _read_config(file: Path) -> RunConfig:
    try:
        # plain values without interpolations; OmegaConf.load would also take twenty times as long
        text = file.read_text(encoding="utf-8")
        values = load_yaml(text)
        if "${" in text:
            raise ValueError("a run's settings are plain values, but it has an interpolation, ${...}")
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or an impossible date
        raise UserError(f"{file} is not readable YAML ({one_line(error)}); {RESTORE}") from error
    if not isinstance(values, dict):
        raise UserError(f"{file} holds no settings (key: value lines); {RESTORE}")
    for note in _drop_removed(values):
        _say_once(f"{file}: {note}")
    _add_pooling(values)
    try:
        return from_values(RunConfig, values)
    except UserError as error:
        raise UserError(f"{file}: {error}; {RESTORE}") from error


def _drop_removed(values: dict[str, Any]) -> list[str]:
    """Remove the settings that this version no longer has; return a line for each that was not at its default."""
    notes = []
    for key, (default, instead) in REMOVED.items():
        group, name = key.split(".")
        settings = values.get(group)
        if isinstance(settings, dict) and settings.pop(name, default) != default:
            notes.append(f"{key} was removed and has no effect: {instead}")
    return notes


def _add_pooling(values: dict[str, Any]) -> None:
    """Add pooling=class to the hf: text tower of a run of clipx 0.1, which always took the class token."""
    model = values.get("model")
    text = model.get("text") if isinstance(model, dict) else None
    if isinstance(text, dict) and str(text.get("name")).startswith("hf:"):
        text.setdefault("pooling", "class")


@cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr)
