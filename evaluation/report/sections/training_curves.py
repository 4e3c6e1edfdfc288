"""Accuracy while training, from the logs: a figure a measure, a curve a run."""

import math

from evaluation.report.blocks import Block, Details, Figure, Figures
from evaluation.report.figures import plots
from evaluation.report.sections.artifacts import slug
from evaluation.runs.description import number
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

MOST_FIGURES = 6  # that are not folded


def blocks(groups: list[RunGroup]) -> list[Block]:
    """Nothing where log.evaluate_every was 0."""
    logged = [(group.label, run) for group in groups for run in group.runs]
    measures = dict.fromkeys(key for _, run in logged for line in run.log for key in line.get("evaluation") or {})
    drawn: list[Figure] = []
    for measure in measures:
        if lines := [line for label, run in logged if (line := _line(label, run, measure)).x]:
            caption = f"{measure} while training, one line a seed"
            name = f"evaluation-{len(drawn) + 1:02d}-{slug(measure)}"
            drawn.append(plots.curves(name, caption, lines, "step", measure.rpartition(" ")[2], log_y=False))
    figures = Figures(drawn)
    if len(drawn) > MOST_FIGURES:
        return [Details(f"Each of the {len(drawn)} measures while training", [figures])]
    return [figures] if drawn else []


def _line(label: str, run: Run, measure: str) -> plots.Line:
    points = [(number(line, "step"), number(line.get("evaluation") or {}, measure)) for line in run.log]
    finite = [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]
    return plots.Line(label, [x for x, _ in finite], [y for _, y in finite])
