"""The papers' figures that runs can draw: margins, gap, uniformity (papers 1 and 4), missing objects (paper 1)."""

import math
from statistics import fmean
from typing import Any

from evaluation.claims.evidence import Evidence, Seeds
from evaluation.claims.measures import EarlyChange, logged_geometry
from evaluation.claims.names import GAP, PROBE, RECALL_1, UNIFORMITY, ZEROSHOT
from evaluation.claims.papers.paper4 import DYNAMICS, INITIAL
from evaluation.claims.types import Measure
from evaluation.report.blocks import Figure
from evaluation.report.figures import geometry, plots
from evaluation.report.figures.svg import COLOURS
from evaluation.report.sections.artifacts import per_dataset, slug
from evaluation.runs.groups import RunGroup

MOST_PICTURES = 4  # PCA pictures; more tell nothing new
MARGINS = {  # recipe -> arms, as in the papers' figures 3 and 6
    "Fig. 3": ("untrained", "tau_07", "tau_01"),
    "Fig. 6": ("tau_01", "tau_01_reg"),
}
SCATTERS: dict[str, tuple[Measure, str]] = {  # scores, and the paper's figure
    "R@1 both ways": (RECALL_1, "Fig. 6"),
    "zero-shot": (ZEROSHOT, "Fig. 7"),
    "linear probe": (PROBE, "Fig. 7"),
}
AXES: dict[str, Measure] = {"gap": GAP, "uniformity": UNIFORMITY}


FIGURES = {  # names of drawings begin so -> the papers' figures, and what makes them
    "margins": "margin densities (paper 1, Figs. 3 and 6): clipx reproduce recipe=margin_mini",
    "missing-objects": "missing objects (paper 1, Fig. 4): clipx report missing-objects ANNOTATIONS",
    "pca": "pairs in a plane (paper 4, Fig. 1): clipx eval checkpoint=RUN tasks=[geometry]",
    "slow-closure": "slow closure (paper 4, Fig. 4): clipx reproduce recipe=gap_dynamics_mini",
    "early-gap": "early growth (paper 4, Fig. 4): clipx reproduce recipe=gap_init_mini",
    "scatter": "scores against gap and uniformity (paper 4, Figs. 6 and 7): clipx reproduce recipe=gap_mini",
}


def missing(drawn: list[Figure]) -> list[str]:
    """The papers' figures that are not there, each with the command that makes it."""
    return [what for name, what in FIGURES.items() if not any(figure.name.startswith(name) for figure in drawn)]


def figures(groups: list[RunGroup], evidence: Evidence) -> list[Figure]:
    """Every figure that the runs have the numbers for."""
    return [
        *_margins(groups),
        *_scatters(evidence),
        *_closure(evidence),
        *_early(evidence),
        *_pictures(groups),
        *_missing(evidence),
    ]


def _margins(groups: list[RunGroup]) -> list[Figure]:
    """One figure a data set; the arms of the margin study as in the paper's two figures."""
    drawn: list[Figure] = []
    for dataset, found in per_dataset(groups, "geometry").items():
        curves = {group.label: _density([one["margins"] for one in of_seeds]) for group, of_seeds in found}
        arms = {str(group.runs[0].config.get("arm") or ""): group.label for group, _ in found}
        study = {
            f"paper 1, {figure}": {arm: curves[arms[arm]] for arm in wanted if arm in arms}
            for figure, wanted in MARGINS.items()
        }
        chosen = {title: lines for title, lines in study.items() if len(lines) > 1}
        if not chosen and len(curves) <= len(COLOURS):
            chosen = {"": curves}
        for title, lines in chosen.items():
            caption = f"{dataset}: density of the margins in batches of 64" + (f" ({title})" if title else "")
            drawn.append(geometry.densities(f"margins-{len(drawn) + 1:02d}-{slug(dataset)}", caption, lines))
    return drawn


def _density(histograms: list[dict[str, Any]]) -> geometry.Density:
    """Of all seeds together."""
    first, last = float(histograms[0]["first"]), float(histograms[0]["last"])
    counts = [sum(cells) for cells in zip(*(one["counts"] for one in histograms), strict=True)]
    width, total = (last - first) / len(counts), max(1, sum(counts))
    return geometry.Density(first, width, [count / total / width for count in counts])


def _scatters(evidence: Evidence) -> list[Figure]:
    """Paper 4, figures 6 and 7: a point an arm, mean of its seeds."""
    drawn = []
    for recipe, arms in evidence.runs.items():
        for x_name, x in AXES.items():
            for y_name, (y, figure) in SCATTERS.items():
                points = {arm: (_mean(x, seeds), _mean(y, seeds)) for arm, seeds in arms.items()}
                known = {arm: p for arm, p in points.items() if all(math.isfinite(v) for v in p)}
                if len(known) >= 4:
                    name = f"scatter-{slug(recipe)}-{slug(x_name)}-{slug(y_name)}"
                    caption = f"{recipe}: {y_name} against {x_name}, a point an arm (paper 4, {figure})"
                    drawn.append(geometry.scatter(name, caption, known, x_name, y_name))
    return drawn


def _mean(measure: Measure, seeds: Seeds) -> float:
    values = [fmean(pieces.values()) for run in seeds.values() if (pieces := measure.read(run))]
    return fmean(values) if values else math.nan


def _closure(evidence: Evidence) -> list[Figure]:
    """Paper 4, figure 4: the gap against -1/log^2 t after step 100."""
    drawn = []
    for recipe in DYNAMICS:
        lines = []
        for arm, seeds in evidence.runs.get(recipe, {}).items():
            for run in seeds.values():
                points = [(-1 / math.log(step) ** 2, gap) for step, gap in logged_geometry(run, "gap") if step > 100]
                lines.append(plots.Line(arm or run.name, [x for x, _ in points], [y for _, y in points]))
        if any(line.x for line in lines):
            caption = (
                f"{recipe}: gap while training, one line a seed; slow closure is a straight line (paper 4, Fig. 4)"
            )
            drawn.append(plots.curves(f"slow-closure-{slug(recipe)}", caption, lines, "−1 / log² t", "gap"))
    return drawn


def _early(evidence: Evidence) -> list[Figure]:
    """Paper 4, figure 4: the gap's change in ten steps over initialisations."""
    drawn = []
    for recipe in INITIAL:
        runs = [run for seeds in evidence.runs.get(recipe, {}).values() for run in seeds.values()]
        changes = [change for run in runs for change in EarlyChange().read(run).values()]
        if len(changes) > 1:
            name, label = f"early-gap-{slug(recipe)}", "gap after 10 steps − at initialisation"
            count = f"{len(changes)} initialisations"
            caption = f"{recipe}: change of the gap in the first 10 steps, {count} (paper 4, Fig. 4)"
            drawn.append(geometry.counts(name, caption, changes, label))
    return drawn


def _pictures(groups: list[RunGroup]) -> list[Figure]:
    """Paper 4, figure 1, of the first seed of each group."""
    found = [(d, group, of_seeds[0]) for d, of in per_dataset(groups, "geometry").items() for group, of_seeds in of]
    return [
        geometry.pairs_in_plane(
            f"pca-{at:02d}-{slug(dataset)}-{slug(group.label)}",
            f"{dataset} · {group.label}: pairs in the first two principal components (paper 4, Fig. 1)",
            artifact["pca"]["image"],
            artifact["pca"]["text"],
        )
        for at, (dataset, group, artifact) in enumerate(found[:MOST_PICTURES], 1)
    ]


def _missing(evidence: Evidence) -> list[Figure]:
    if evidence.missing_objects is None:
        return []
    caption = "Annotated kinds of object that a caption leaves out, share of the pairs (paper 1, Fig. 4)"
    histogram = evidence.missing_objects
    shares = [count / sum(histogram) for count in histogram]
    return [geometry.columns("missing-objects", caption, shares, "missing kinds of object", "share of pairs")]
