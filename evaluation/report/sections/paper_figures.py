"""Sections "Paper figures" (margins, gap and uniformity, missing objects) and "Toy problems"."""

import json
import math
from pathlib import Path
from statistics import fmean

from clipx.utils.figures import COLOURS
from evaluation.claims.evidence import Evidence, Seeds
from evaluation.claims.measures import GAP, PROBE, RECALL_1, UNIFORMITY, ZEROSHOT, EarlyChange, logged_gaps
from evaluation.claims.papers.paper1 import MARGIN_RECIPES
from evaluation.claims.papers.paper4 import DYNAMICS, INITIAL
from evaluation.claims.types import Measure, Outcome
from evaluation.report.blocks import Block, Details, Figure, Figures, SvgFile, Text
from evaluation.report.figures.geometry import Density, column_chart, density_plot, histogram, pca_plot, scatter_plot
from evaluation.report.figures.plots import Line, line_plot
from evaluation.report.figures.svg import slug
from evaluation.report.sections.task_details import Artifact, artifacts_by_dataset
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import STATED

MAX_PCA_PLOTS = 4
MIN_SCATTER_POINTS = 4
MARGIN_ARMS = {  # paper 1: figure -> arms
    "Fig. 3": ("untrained", "tau_07", "tau_01"),
    "Fig. 6": ("tau_01", "tau_01_reg"),
}
SCATTER_Y: dict[str, tuple[Measure, str]] = {  # score, figure of paper 4
    "R@1 both ways": (RECALL_1, "Fig. 6"),
    "zero-shot": (ZEROSHOT, "Fig. 7"),
    "linear probe": (PROBE, "Fig. 7"),
}
SCATTER_X: dict[str, Measure] = {"gap": GAP, "uniformity": UNIFORMITY}
MISSING = {  # prefix of a figure's name -> the paper's figure, and the command that makes its data
    "margins": "margin densities (paper 1, Figs. 3 and 6); run clipx reproduce recipe=margin_mini",
    "missing-objects": "missing objects (paper 1, Fig. 4); run clipx report missing-objects ANNOTATIONS",
    "pca": "PCA of image-text pairs (paper 4, Fig. 1); run clipx eval RUN tasks=[geometry]",
    "slow-closure": "slow closure (paper 4, Fig. 4); run clipx reproduce recipe=gap_dynamics_mini",
    "early-gap": "early growth (paper 4, Fig. 4); run clipx reproduce recipe=gap_init_mini",
    "scatter": "scores against gap and uniformity (paper 4, Figs. 6 and 7); run clipx reproduce recipe=gap_mini",
}


def paper_figures(groups: list[RunGroup], evidence: Evidence, list_missing: bool) -> list[Block]:
    """Return the figures that the runs have data for; with `list_missing`, also the commands for the others."""
    figures = [
        *_margins(groups),
        *_scores_against_geometry(evidence),
        *_slow_closure(evidence),
        *_early_gap(evidence),
        *_pca(groups),
        *_missing_objects(evidence),
    ]
    missing = [
        Text(f"Not drawn: {figure_and_command}", "muted")
        for prefix, figure_and_command in MISSING.items()
        if list_missing and not any(figure.name.startswith(prefix) for figure in figures)
    ]
    return [*([Figures(figures)] if figures else []), *missing]


def toy_problems(evidence: Evidence, outcomes: list[Outcome]) -> list[Block]:
    """Return one folded block per problem of `clipx theory`, with its verdicts and drawings."""
    by_folder: dict[Path, list[Path]] = {}
    for file in evidence.drawn:
        by_folder.setdefault(file.parent, []).append(file)
    blocks: list[Block] = [
        _toy_problem(number, folder, files, outcomes) for number, (folder, files) in enumerate(by_folder.items(), 1)
    ]
    note = "Computed by clipx theory, without data and towers."
    return [Text(note, "muted"), *blocks] if blocks else []


def _toy_problem(number: int, folder: Path, files: list[Path], outcomes: list[Outcome]) -> Details:
    name, stated = folder.name, {row["claim"] for row in json.loads((folder / STATED).read_text())}
    decided = [outcome for outcome in outcomes if outcome.claim.id in stated]
    verdicts = [f"{outcome.claim.id} {outcome.verdict}" for outcome in decided]
    statements = [Text(f"{o.claim.id} {o.verdict}: {o.claim.statement}") for o in decided]
    prefix = f"theory-{number:02d}-{slug(name)}"
    drawings = [SvgFile(f"{prefix}-{slug(file.stem)}", file.read_bytes(), file.stem) for file in files]
    return Details(f"{name}: {', '.join(verdicts)}" if verdicts else name, [*statements, Figures(drawings)])


def _margins(groups: list[RunGroup]) -> list[Figure]:
    """Paper 1, Figs. 3 and 6: one figure per data set and entry of MARGIN_ARMS.

    A data set without such a figure has one with all its groups, if there are enough colours.
    """
    figures: list[Figure] = []
    for dataset, members in artifacts_by_dataset(groups, "geometry").items():
        densities = {group.label: _density([seed["margins"] for seed in seeds]) for group, seeds in members}
        # of several groups of an arm the first counts, which has no overrides
        of_paper = [group for group, _ in members if group.runs[0].config.recipe in MARGIN_RECIPES]
        labels = {group.runs[0].config.arm: group.label for group in reversed(of_paper)}
        by_figure = {
            f"paper 1, {figure}": {arm: densities[labels[arm]] for arm in arms if arm in labels}
            for figure, arms in MARGIN_ARMS.items()
        }
        chosen = {source: by_arm for source, by_arm in by_figure.items() if len(by_arm) > 1}
        if not chosen and len(densities) <= len(COLOURS):
            chosen = {"": densities}
        for source, by_label in chosen.items():
            caption = f"{dataset}: density of the margins in batches of 64" + (f" ({source})" if source else "")
            figures.append(density_plot(f"margins-{len(figures) + 1:02d}-{slug(dataset)}", caption, by_label))
    return figures


def _density(histograms: list[Artifact]) -> Density:
    first, last = float(histograms[0]["first"]), float(histograms[0]["last"])
    counts = [sum(counts) for counts in zip(*(seed["counts"] for seed in histograms), strict=True)]
    width, total = (last - first) / len(counts), max(1, sum(counts))
    return Density(first, width, [count / total / width for count in counts])


def _scores_against_geometry(evidence: Evidence) -> list[Figure]:
    """Paper 4, Figs. 6 and 7: one point per arm, the mean of its seeds."""
    figures = []
    for recipe, arms in evidence.runs.items():
        for x_name, x in SCATTER_X.items():
            for y_name, (y, source) in SCATTER_Y.items():
                points = {arm: (_mean_over_seeds(x, seeds), _mean_over_seeds(y, seeds)) for arm, seeds in arms.items()}
                known = {arm: point for arm, point in points.items() if all(map(math.isfinite, point))}
                if len(known) >= MIN_SCATTER_POINTS:
                    name = f"scatter-{slug(recipe)}-{slug(x_name)}-{slug(y_name)}"
                    caption = f"{recipe}: {y_name} against {x_name}, one point per arm (paper 4, {source})"
                    figures.append(scatter_plot(name, caption, known, x_name, y_name))
    return figures


def _mean_over_seeds(measure: Measure, seeds: Seeds) -> float:
    values = [fmean(by_dataset.values()) for run in seeds.values() if (by_dataset := measure.read(run))]
    return fmean(values) if values else math.nan


def _slow_closure(evidence: Evidence) -> list[Figure]:
    """Paper 4, Fig. 4: the gap against -1/log^2 t after step 100."""
    figures = []
    for recipe in DYNAMICS:
        lines = []
        for arm, seeds in evidence.runs.get(recipe, {}).items():
            for run in seeds.values():
                points = [(-1 / math.log(step) ** 2, gap) for step, gap in logged_gaps(run) if step > 100]
                lines.append(Line.of_finite(arm or run.name, points))
        if any(line.x for line in lines):
            caption = f"{recipe}: gap during training, one line per seed; slow closure is a straight line"
            caption += " (paper 4, Fig. 4)"
            figures.append(line_plot(f"slow-closure-{slug(recipe)}", caption, lines, "−1 / log² t", "gap"))
    return figures


def _early_gap(evidence: Evidence) -> list[Figure]:
    """Paper 4, Fig. 4: histogram of the gap's change in the first ten steps, over random initialisations."""
    figures = []
    for recipe in INITIAL:
        runs = [run for seeds in evidence.runs.get(recipe, {}).values() for run in seeds.values()]
        changes = [change for run in runs for change in EarlyChange().read(run).values()]
        if len(changes) > 1:
            name, x = f"early-gap-{slug(recipe)}", "gap after 10 steps − at initialisation"
            count = f"{len(changes)} initialisations"
            caption = f"{recipe}: change of the gap in the first 10 steps, {count} (paper 4, Fig. 4)"
            figures.append(histogram(name, caption, changes, x))
    return figures


def _pca(groups: list[RunGroup]) -> list[Figure]:
    """Paper 4, Fig. 1: the first seed of each group."""
    by_dataset = artifacts_by_dataset(groups, "geometry")
    plotted = [(dataset, group, seeds[0]) for dataset, members in by_dataset.items() for group, seeds in members]
    return [
        pca_plot(
            f"pca-{number:02d}-{slug(dataset)}-{slug(group.label)}",
            f"{dataset} · {group.label}: image-text pairs, first two principal components (paper 4, Fig. 1)",
            artifact["pca"]["image"],
            artifact["pca"]["text"],
        )
        for number, (dataset, group, artifact) in enumerate(plotted[:MAX_PCA_PLOTS], 1)
    ]


def _missing_objects(evidence: Evidence) -> list[Figure]:
    if evidence.missing_objects is None:
        return []
    counts = evidence.missing_objects
    shares = [count / sum(counts) for count in counts]
    caption = (
        "Annotated object categories that the caption does not name, share of image-caption pairs (paper 1, Fig. 4)"
    )
    return [column_chart("missing-objects", caption, shares, "missing categories", "share of pairs")]
