"""Access to the artifacts of runs: JSON files in which tasks keep what the report draws."""

from typing import Any

from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

Artifact = dict[str, Any]


def artifacts(run: Run, kind: str) -> list[tuple[str, Artifact]]:
    """Return the data set and content of each artifact of `kind`."""
    return [
        (run.dataset(stem.partition("-")[2]), artifact)
        for stem, artifact in run.artifacts.items()
        if artifact.get("kind") == kind
    ]


def artifacts_by_dataset(groups: list[RunGroup], kind: str) -> dict[str, list[tuple[RunGroup, list[Artifact]]]]:
    """Return, by data set, the groups that have artifacts of `kind`, each with one artifact per seed."""
    by_dataset: dict[str, dict[str, tuple[RunGroup, list[Artifact]]]] = {}
    for group in groups:
        for run in group.runs:
            for dataset, artifact in artifacts(run, kind):
                by_group = by_dataset.setdefault(dataset, {})
                by_group.setdefault(group.label, (group, []))[1].append(artifact)
    return {dataset: list(by_group.values()) for dataset, by_group in by_dataset.items()}
