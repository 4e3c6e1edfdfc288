"""Sections "Settings", "Training conditions" and "Provenance": settings, measured values, versions, hashes, folders."""

import json

from clipx.utils.terminal import duration
from evaluation.claims.conditions import measured_conditions
from evaluation.report.blocks import Block, Cell, Details, KeyValues, Table, Text
from evaluation.runs.description import MISSING, describe, flat, training_seconds
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

CONDITIONS = (
    "Median over the runs of a recipe, with the range in brackets if they differ. Final training loss: mean over the "
    "last tenth of the logged steps; where the objective has a term `clip`, of that term alone. False negative: a "
    "caption that is also true of another image in the batch; counted only for rendered scenes."
)


def settings(groups: list[RunGroup]) -> list[Block]:
    """Return a table of the settings that differ between groups, and a list of the common ones."""
    by_group = []
    for group in groups:
        seeds = ", ".join(str(run.seed) for run in group.runs)
        described = {"Method": group.label, "Seeds": seeds, **describe(group.longest[0])}
        times = [seconds for run in group.longest if (seconds := training_seconds(run)) is not None]
        if len(times) > 1:
            described["Training time"] = f"{duration(sum(times) / len(times))} per seed"
        by_group.append(described)
    differing = [key for key in by_group[0] if len({described[key] for described in by_group}) > 1]
    common = KeyValues([(key, value) for key, value in by_group[0].items() if key not in differing])
    if not differing:
        return [common]
    table = Table(differing, [[Cell(described[key]) for key in differing] for described in by_group])
    return [Text("Differences:", "muted"), table, Text("Common to all runs:", "muted"), common]


def conditions(runs: list[Run]) -> list[Block]:
    """Return a table for each recipe of a paper: the measured training conditions beside the paper's."""
    blocks: list[Block] = []
    for found in measured_conditions(runs):
        paper = f"paper {found.paper.paper}"
        rows = [[Cell(text) for text in row] for row in found.table()]
        blocks += [
            Text(f"{found.recipe}, beside {paper}: {found.paper.name}"),
            Table(["Condition", paper, "ours", "source"], rows),
        ]
    return [Text(CONDITIONS, "muted"), *blocks] if blocks else []


def provenance(groups: list[RunGroup], with_hashes: bool = True) -> list[Block]:
    """Return a folded block: environments with their runs, hashes of the results, folders of the runs."""
    environments: dict[str, list[str]] = {}  # JSON -> runs
    for group in groups:
        for run in group.runs:
            # `samples` are hashes of photographs, which a resumed run compares
            if found := {key: value for key, value in run.environment.items() if key != "samples"}:
                environments.setdefault(json.dumps(found), []).append(f"{group.label} seed {run.seed}")
    blocks: list[Block] = []
    for environment, names in environments.items():
        blocks += [Text(f"Environment of {', '.join(names)}"), KeyValues(flat(json.loads(environment)))]
    if with_hashes:
        blocks += _hashes(groups)
    blocks.append(
        KeyValues([(f"{group.label} seed {run.seed}", str(run.path)) for group in groups for run in group.runs])
    )
    return [Details("Versions, git commit, hashes, folders", blocks)]


def _hashes(groups: list[RunGroup]) -> list[Block]:
    metrics: dict[tuple[str, ...], list[str]] = {}  # method, seed, data set, model, hashes -> metrics with these hashes
    results = [(group.label, row) for group in groups for run in group.runs for row in run.results]
    names = list(dict.fromkeys(key for _, row in results for key in row.hashes))
    for label, row in results:
        hashes = [row.hashes.get(name, MISSING) for name in names]
        key = label, str(row.seed), row.dataset, row.model, *hashes
        metrics.setdefault(key, []).append(row.metric)
    rows = [
        [Cell(name), Cell(seed, int(seed)), Cell(dataset), Cell(", ".join(of_key)), *map(Cell, rest)]
        for (name, seed, dataset, *rest), of_key in metrics.items()
    ]
    columns = ["Method", "Seed", "Data set", "Metrics", "Model", *names]
    return [Text("Hashes of the results"), Table(columns, rows)] if rows else []
