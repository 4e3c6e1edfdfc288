"""Run: what a report reads of a run directory, at once and checked: settings, log, result rows and artifacts."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import multimode
from typing import Any

from clipx.config.schema import RunConfig
from clipx.config.setting import from_values
from clipx.errors import UserError
from clipx.run.folder import (
    AGAIN,
    ARTIFACTS,
    RESULTS,
    Row,
    RunFolder,
    natural_order,
    newest_runs,
    read_object,
    refuse_links,
    run_folders,
)
from evaluation.runs import results
from evaluation.types import Result, first_names

STATED = "claims.json"  # written by `clipx theory`, `clipx bench` and `clipx report missing-objects`
REPORT = "report.md"  # a pattern such as runs/RECIPE-* matches the folder of a report too
HINT = "run `clipx train recipe=demo`, then `clipx eval RUN`"
OTHER_DATA = re.compile(r" \[data [0-9a-f]+\]$")  # at the end of a data set's name, see `name_apart`


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _finite(value: Any) -> bool:
    return _number(value) and math.isfinite(value)


def _row(*shapes: Any) -> Callable[[Any], bool]:
    """Return a shape: a list of exactly as many values, the first with the first shape, and so on."""
    return lambda value: isinstance(value, list) and len(value) == len(shapes) and all(map(_fits, value, shapes))


def _text_or_image(entry: dict[str, Any]) -> bool:
    """Return True if an entry of a retrieval example shows an image (`src`) or a caption."""
    shown = [entry[key] for key in ("src", "caption", "text") if key in entry]
    return bool(shown) and all(isinstance(text, str) for text in shown)


def _cells_fit(artifact: dict[str, Any]) -> bool:
    """Return True if the class numbers of all cells have names."""
    names = len(artifact["classnames"])
    return all(0 <= true < names and 0 <= predicted < names for true, predicted, _ in artifact["cells"])


# kind of artifact -> what the report reads from it. A dict: these keys; {str: x}: any keys, each with x; [x]: a list of
# x; a type: a value of that type; a function: True for a right value; a tuple: each of these shapes, in their order.
# Plug-ins may write other kinds.
POINTS = [_row(_finite, _finite)]
ANSWERS = [({"similarity": _number, "correct": object}, _text_or_image)]
CAPTION = {"caption": str, "text": _finite, "image": _finite, "popularity": lambda p: p is None or _finite(p)}
SHAPES: dict[str, Any] = {
    "confused": ({"classnames": [object], "cells": [_row(int, int, _finite)]}, _cells_fit),
    "retrieval": {
        "text_to_image": [({"rank": int, "images": ANSWERS}, _text_or_image)],
        "image_to_text": [({"rank": int, "captions": ANSWERS}, _text_or_image)],
    },
    "geometry": {
        "margins": {"first": _finite, "last": _finite, "counts": [_finite]},
        "pca": ({"image": POINTS, "text": POINTS}, lambda pca: len(pca["image"]) == len(pca["text"])),
    },
    "popularity": {"captions": {str: [CAPTION]}, "curve": {str: [_finite]}},
    "zeroshot_draws": {"top1": [_finite], "mean_per_class": [_finite]},
}


def _fits(value: Any, shape: Any) -> bool:
    """Return True if a value of a JSON file has a shape of SHAPES."""
    if isinstance(shape, tuple):
        return all(_fits(value, part) for part in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(element, shape[0]) for element in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        of_key = dict.fromkeys(value, shape[str]) if str in shape else shape
        return all(key in value and _fits(value[key], of_element) for key, of_element in of_key.items())
    return isinstance(value, shape) if isinstance(shape, type) else bool(shape(value))


@dataclass(frozen=True)
class Run:
    """One run; files that do not exist yet give empty fields."""

    path: Path
    name: str
    seed: int
    config: RunConfig  # for published weights, which have none: that of `no_config`
    log: list[Row]  # one row for each logged step, in ascending order
    results: list[Result]  # in the order of writing
    artifacts: dict[str, dict[str, Any]]  # "<task>-<dataset with / as _>" -> content for the report's figures
    environment: dict[str, Any]
    evaluation_seconds: float = 0.0  # of `clipx reproduce`; 0 if unknown
    limited_rows: int = 0  # rows of `clipx eval limit=N` that are left out of `results`

    @property
    def has_config(self) -> bool:
        """False for the results of published weights."""
        return bool(self.config.name)

    @property
    def diverged(self) -> bool:
        """True if the results have a row of task `train`, which only diverged runs have."""
        return any(row.task == results.DIVERGED for row in self.results)

    @property
    def failed_to_start(self) -> bool:
        """True if the run has neither a logged step nor results, for example because its data were missing."""
        return not (self.log or self.results)

    def dataset(self, slug: str) -> str:
        """Return the data set's name for a slug, which has "_" for "/"; keep a suffix such as `, prompts X`."""
        short, comma, choice = slug.partition(", ")
        names = (row.dataset for row in reversed(self.results))  # artifacts of the last set with this name are kept
        same = (name for name in names if OTHER_DATA.sub("", name).replace("/", "_") == short)
        return next(same, short) + comma + choice

    def artifacts_of(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the data set, with a suffix such as `, prompts X`, and the content of each artifact of a kind."""
        of_kind = [(stem, artifact) for stem, artifact in self.artifacts.items() if artifact.get("kind") == kind]
        return [(self.dataset(stem.partition("-")[2]), artifact) for stem, artifact in of_kind]


def find(paths: list[Path], needed: bool = True, limited: bool = False) -> list[Run]:
    """Return all runs at or below `paths`, each once, ordered by folder.

    `limited`: also read the rows of `clipx eval limit=N`.

    Raises UserError: a path does not exist, a file of a run is corrupt, or `needed` is set and a path has no run. But a
    path with only a claims.json or a report is accepted if an earlier path has runs.
    """
    folders: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"no run folder at {path}{newest_runs(str(path)) or f'; {HINT}'}")
        found = list(run_folders(path))
        if needed and not found and not (folders and ((path / REPORT).exists() or any(path.rglob(STATED)))):
            raise UserError(f"no run (a folder with config.yaml) at or below {path}; {HINT}")
        for folder in found:
            folders.setdefault(folder.resolve(), folder)
    return name_apart([read(folder, limited) for folder in sorted(folders.values(), key=natural_order)])


def name_apart(runs: list[Run]) -> list[Run]:
    """Return the runs, in which results of different data under one name have different names: `test [data 3f2a1c]`.

    Two sets can have one name, such as a/test.csv and b/test.csv, or a set has changed between two evaluations. The
    data that most runs were evaluated on keep the name. Hashes of images are not compared, because those of image files
    differ between copies.
    """
    used: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        for metric, data in {(row.key, results.data_hash(row)) for row in run.results}:
            used.setdefault(metric, []).append(data)
    usual = {metric: found[0] for metric, hashes in used.items() if len(found := multimode(hashes)) == 1}

    def named(row: Result) -> Result:
        data = results.data_hash(row)
        return row if usual.get(row.key) == data else replace(row, dataset=f"{row.dataset} [data {data}]")

    return [replace(run, results=[named(row) for row in run.results]) for run in runs]


def read(path: Path, limited: bool = False) -> Run:
    """Return the run in the folder `path`; `limited` as in `find`.

    Raises UserError: a file of the run is corrupt; the message names it.
    """
    folder = RunFolder(path)
    if folder.has_config:
        config, name, seed = folder.config, folder.config.name, folder.config.seed
    else:
        refuse_links(path)  # with a config, `folder.config` does it
        config = no_config()
        place = path.resolve()  # the relative paths s0 and . have no parent
        is_seed_folder = place.name[:1] == "s" and place.name[1:].isdecimal()
        name, seed = (place.parent.name, int(place.name[1:])) if is_seed_folder else (place.name, 0)
    rows = results.read(path / RESULTS)
    kept = [row for row in rows if limited or results.LIMIT not in row.hashes]
    return Run(
        path=path,
        name=name,
        seed=seed,
        config=config,
        log=folder.log,
        results=kept,
        artifacts=dict(_artifacts(path / ARTIFACTS, limited)),
        environment=folder.environment,
        evaluation_seconds=folder.evaluation_seconds,
        limited_rows=len(rows) - len(kept),
    )


def no_config() -> RunConfig:
    """Return a config without names, for the results of published weights."""
    towers = {"image": {"name": ""}, "text": {"name": ""}}
    data, train = {"name": "", "source": ""}, {"batch_size": 0}
    return from_values(RunConfig, {"name": "", "recipe": "", "data": data, "model": towers, "train": train})


def limited_note(runs: list[Run]) -> str:
    """Return a sentence that names the runs whose rows are all from `clipx eval limit=N` and left out; "" if none."""
    only = [str(run.path) for run in runs if run.limited_rows and not run.results]
    return f"Evaluated with limit=N only: {first_names(only)}. Add limited=true to include these rows." if only else ""


def other_data_note(runs: list[Run]) -> str:
    """Return a sentence that names the results of other data than most, see `name_apart`; "" if there are none."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for name in dict.fromkeys(row.dataset for row in run.results if OTHER_DATA.search(row.dataset)):
            found.setdefault(name, []).append(str(run.path))
    of_runs: dict[tuple[str, ...], list[str]] = {}  # runs -> names; tasks of one run may have several
    for name, paths in found.items():
        of_runs.setdefault(tuple(paths), []).append(name)
    places = "; ".join(f"{', '.join(names)}: {first_names(paths)}" for paths, names in of_runs.items())
    return f"Results on other data than those of most runs are not averaged with them. {places}." if found else ""


def _artifacts(folder: Path, limited: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield file name without suffix and content of each artifact. Raises UserError: one is corrupt."""
    for file in sorted(folder.glob("[!.]*.json")):  # macOS adds ._NAME.json to copies on other file systems
        if limited or f", {results.LIMIT} " not in file.stem:
            artifact = read_object(file, AGAIN)
            if not _fits(artifact, SHAPES.get(str(artifact.get("kind")), {})):
                raise UserError(f"{file} is corrupt; {AGAIN}")
            yield file.stem, artifact
