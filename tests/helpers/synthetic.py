"""Runs with given results, as objects or as run directories."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from clipx.config.schema import RunConfig
from clipx.config.setting import from_values
from evaluation.claims.evidence import Evidence
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Claim
from evaluation.runs import results
from evaluation.runs.reader import Run
from evaluation.tasks.geometry import histogram, principal_components
from evaluation.types import Result

MANDATORY = {
    "name": "r",
    "recipe": "r",
    "data": {"name": "d", "source": "shards"},
    "model": {side: {"name": "open_clip:a"} for side in ("image", "text")},
    "train": {"batch_size": 64},
}
Values = dict[tuple[str, str, str], float]  # (task, dataset, metric) -> value


def claim(claim_id: str) -> Claim:
    (found,) = [one for one in CLAIMS if one.id == claim_id]
    return found


def result(task: str, dataset: str, metric: str, value: float, seed: int = 0) -> Result:
    return Result(
        task=task,
        dataset=dataset,
        split="test",
        metric=metric,
        value=value,
        n=1000,
        low=value - 0.02,
        high=value + 0.02,
        chance=0.1,
        higher_is_better=True,
        seed=seed,
        model="m",
    )


def run(
    recipe: str,
    arm: str,
    seed: int,
    values: Values,
    log: list[dict[str, Any]] | None = None,
    settings: dict[str, Any] | None = None,
) -> Run:
    name = f"{recipe}-{arm}" if arm else recipe
    config = config_of({"name": name, "recipe": recipe, "arm": arm, "seed": seed, **(settings or {})})
    rows = [result(*key, value, seed) for key, value in values.items()]
    return Run(Path("runs") / name / f"s{seed}", name, seed, config, log or [], rows, {}, {})


def config_of(settings: dict[str, Any]) -> RunConfig:
    """Return a config with these nested settings; others have their default or that of MANDATORY."""
    return from_values(RunConfig, merged(MANDATORY, settings))


def changed(one: Run, **settings: Any) -> Run:
    """Return the run with these nested settings in its config."""
    return replace(one, config=from_values(RunConfig, merged(asdict(one.config), settings)))


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return nested settings, of which those in `new` replace those in `old`; an objective is replaced as a whole."""
    groups = {key: merged(old[key], new[key]) for key in old.keys() & new if isinstance(old[key], dict)}
    return {**old, **new, **{key: value for key, value in groups.items() if key != "objective"}}


def with_geometry(one: Run, margin: float) -> Run:
    """Return the run with a geometry artifact whose margins have the mean `margin`."""
    draw = torch.Generator().manual_seed(one.seed)
    image, text = (torch.nn.functional.normalize(torch.randn(64, 8, generator=draw), dim=1) for _ in range(2))
    margins = margin + 0.1 * torch.randn(1000, generator=draw)
    artifact = {"kind": "geometry", "margins": histogram(margins), "pca": principal_components(image, text)}
    return replace(one, artifacts={"geometry-scenes_captions": artifact})


def evidence(runs: list[Run]) -> Evidence:
    found: dict[str, dict[str, dict[int, Run]]] = {}
    for one in runs:
        found.setdefault(one.config.recipe, {}).setdefault(one.config.arm, {})[one.seed] = one
    return Evidence(found, {}, [])


def write(root: Path, one: Run) -> Path:
    """Write the files of a run to `root`/NAME/sSEED and return that folder."""
    folder = root / one.name / f"s{one.seed}"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps(asdict(one.config)))  # JSON is YAML
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in one.log))
    results.write(folder / "results.jsonl", one.results)
    for stem, artifact in one.artifacts.items():
        (folder / "artifacts").mkdir(exist_ok=True)
        (folder / "artifacts" / f"{stem}.json").write_text(json.dumps(artifact))
    return folder
