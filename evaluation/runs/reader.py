"""Reader of run directories: settings, log, result rows and artifacts, as a report needs them."""

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from evaluation.runs import results
from evaluation.runs.artifacts import AGAIN, read_artifacts, read_object
from evaluation.types import Result

MARKS = ("config.yaml", results.RESULTS)  # a folder with one of them is a run; published weights have no config
TIMING = "timing.json"  # written by `clipx reproduce` after the evaluation
STATED = "claims.json"  # written by `clipx theory` and `clipx report missing-objects`
SECONDS = "evaluation_seconds"  # key of TIMING
RESTORE = "restore it from a copy"
N = TypeVar("N", int, float)
HINT = "run `clipx train recipe=demo`, then `clipx eval RUN`"


@dataclass(frozen=True)
class Run:
    """One run directory; files that do not exist yet give empty fields."""

    path: Path
    name: str
    seed: int
    config: dict[str, Any]
    log: list[dict[str, Any]]  # one entry per logged step, in ascending order
    results: list[Result]  # in the order of writing
    artifacts: dict[str, dict[str, Any]]  # "<task>-<dataset with / as _>" -> content for the report's figures
    environment: dict[str, Any]
    evaluation_seconds: float = 0.0  # of `clipx reproduce`; 0 if unknown
    limited_rows: int = 0  # rows of `clipx eval limit=N` that are left out of `results`

    @property
    def diverged(self) -> bool:
        """Return True if the results have a row of task `train`, which only diverged runs have."""
        return any(row.task == results.DIVERGED for row in self.results)

    @property
    def failed_to_start(self) -> bool:
        """Return True if the run has neither a logged step nor results, for example because its data were missing."""
        return not (self.log or self.results)

    def dataset(self, slug: str) -> str:
        """Return the data set's name for a slug, which has "_" for "/"; keep a suffix such as `, prompts X`."""
        short, comma, choice = slug.partition(", ")
        names = (row.dataset for row in self.results)
        return next((name for name in names if name.replace("/", "_") == short), short) + comma + choice

    def artifacts_of(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the data set, with a suffix such as `, prompts X`, and the content of each artifact of a kind."""
        of_kind = [(stem, artifact) for stem, artifact in self.artifacts.items() if artifact.get("kind") == kind]
        return [(self.dataset(stem.partition("-")[2]), artifact) for stem, artifact in of_kind]


def find(paths: list[Path], needed: bool = True, limited: bool = False) -> list[Run]:
    """Return all runs at or below `paths`, each once, ordered by folder.

    `limited`: also read the rows of `clipx eval limit=N`.

    Raises UserError: a path does not exist, a file of a run is corrupt, or `needed` is set and a path has no run. But a
    path with only a claims.json is accepted if an earlier path has runs.
    """
    folders: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"no run folder at {path}; {HINT}")
        found = list(run_folders(path))
        if needed and not found and not (folders and any(path.rglob(STATED))):
            raise UserError(f"no run (a folder with config.yaml) at or below {path}; {HINT}")
        for folder in found:
            folders.setdefault(folder.resolve(), folder)
    return [read(folder, limited) for folder in sorted(folders.values(), key=natural_order)]


def read(folder: Path, limited: bool = False) -> Run:
    """Return the run in `folder`; `limited` as in `find`.

    Raises UserError: a file of the run is corrupt; the message names it.
    """
    file, timing = folder / "config.yaml", folder / TIMING
    config = _config(file)
    rows = results.read(folder / results.RESULTS)
    kept = [row for row in rows if limited or results.LIMIT not in row.hashes]
    is_seed_folder = folder.name[:1] == "s" and folder.name[1:].isdigit()
    return Run(
        path=folder,
        name=str(config.get("name") or (folder.parent.name if is_seed_folder else folder.resolve().name)),
        seed=_number(config.get("seed", int(folder.name[1:]) if is_seed_folder else 0), int, "seed", file, RESTORE),
        config=config,
        log=_log(folder / "log.jsonl"),
        results=kept,
        artifacts={
            stem: artifact
            for stem, artifact in read_artifacts(folder / "artifacts").items()
            if limited or f", {results.LIMIT} " not in stem
        },
        environment=read_object(folder / "environment.json", RESTORE),
        evaluation_seconds=_number(read_object(timing, AGAIN).get(SECONDS, 0.0), float, SECONDS, timing, AGAIN),
        limited_rows=len(rows) - len(kept),
    )


def is_evaluated(folder: Path) -> bool:
    """Return True if `clipx reproduce` has trained and evaluated the run; its checkpoints may be deleted."""
    return (folder / TIMING).is_file()


def limited_note(runs: list[Run]) -> str:
    """Return a sentence that names the runs whose rows are all from `clipx eval limit=N` and left out; "" if none."""
    only = [run for run in runs if run.limited_rows and not run.results]
    evaluated = ", ".join(str(run.path) for run in only[:3]) + (", ..." if len(only) > 3 else "")
    return f"Evaluated with limit=N only: {evaluated}. Add limited=true to include these rows." if only else ""


def run_folders(path: Path) -> Iterator[Path]:
    """Yield the runs at or below `path`. Skip hidden folders and those in a run (checkpoints may have config.yaml)."""
    for name, below, files in os.walk(path):
        if any(mark in files for mark in MARKS):
            yield Path(name)
            below.clear()
        below[:] = [folder for folder in below if not folder.startswith(".")]


def natural_order(path: Path) -> tuple[str, int, str]:
    """Return a sorting key that puts s2 before s10."""
    digits = path.name[1:]
    return str(path.parent), int(digits) if digits.isdigit() else -1, path.name


def _config(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        # ten times faster than OmegaConf.load; clipx writes these files, and they have no interpolations
        config = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or an impossible date
        raise UserError(f"{file} is not readable YAML ({_first_line(error)}); {RESTORE}") from error
    if not isinstance(config, dict):
        raise UserError(f"{file} holds no settings (key: value lines); {RESTORE}")
    for field in dataclasses.fields(RunConfig):
        group = config.get(field.name)
        if dataclasses.is_dataclass(field.default_factory) and not isinstance(group, dict | None):
            raise UserError(f"{file}: {field.name}={group} holds no settings (key: value lines); {RESTORE}")
    return {str(key): value for key, value in config.items()}


def _number(value: Any, kind: type[N], key: str, file: Path, advice: str) -> N:
    """Convert a value of a file. Raises UserError: it is no number of this kind."""
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{file}: {key}={value} is no number; {advice}") from error


def _log(file: Path) -> list[dict[str, Any]]:
    """Return one entry per step: lines of the same step are merged; after a resume, the later line wins.

    Lines that are not JSON are skipped: a killed run can leave half a line.
    """
    by_step: dict[int, dict[str, Any]] = {}
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    for text_line in text.split("\n"):
        try:
            line = json.loads(text_line)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(step := line.get("step"), int):
            by_step[step] = {**by_step.get(step, {}), **line}
    return [by_step[step] for step in sorted(by_step)]


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
