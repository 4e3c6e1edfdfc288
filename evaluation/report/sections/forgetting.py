"""Section "Gain and forgetting": what fine-tuning gains on the new evaluation sets and forgets on the kept ones."""

from functools import partial
from typing import Any

from evaluation.compare.forgetting import Change, FineTuning, fine_tunings
from evaluation.compare.methods import SeedMean
from evaluation.report.blocks import Block, Cell, Figure, Figures, Table, Text, Tone
from evaluation.report.figures import DASHED, INK, Point, add_labels, drawing, slug
from evaluation.runs.description import MISSING, digits
from evaluation.runs.groups import MIN_SEEDS, RunGroup
from evaluation.types import first_names


def forgetting(groups: list[RunGroup]) -> list[Block]:
    """Return, for each recipe with fine-tuned runs, an explanation, the plane, a table and the changes by set."""
    return [block for tuning in fine_tunings(groups) for block in _blocks(tuning)]


def _blocks(tuning: FineTuning) -> list[Block]:
    blocks: list[Block] = []
    if tuning.arms:
        explanation = (
            f"{tuning.recipe}: change of the mean score since the start weights, paired by seed, with 95% intervals "
            f"(Student's t; none with fewer than {MIN_SEEDS} seeds). Gain: rise on the new sets "
            f"({', '.join(tuning.titles[name] for name in tuning.new)}). Forgetting: fall on the kept sets "
            f"({', '.join(tuning.titles[name] for name in tuning.kept)})."
        )
        if any(arm.path() for arm in tuning.arms):
            explanation += (
                " Area: gain minus forgetting of the interpolated weights, integrated over their coefficient from 0 "
                "(start) to 1 (end)."
            )
        blocks += [Text(explanation, "muted"), Figures([_plane(tuning)]), _table(tuning)]
        blocks += [Text("Change since the start weights:", "muted"), _by_set(tuning)]
    if tuning.left_out:
        paths = first_names([*map(str, tuning.left_out)])
        reason = "no results of the run that model.init names, or no common data set"
        blocks.append(Text(f"{tuning.recipe}: left out, {reason}: {paths}", "muted"))
    return blocks


def _plane(tuning: FineTuning) -> Figure:
    """Draw one point with both intervals per arm, and its path. Dashed: the axes and x = y."""
    caption = (
        f"{tuning.recipe}: gain against forgetting since the start weights (+). Dashed diagonal: gain = forgetting"
    )
    if any(arm.path() for arm in tuning.arms):
        caption += ". Lines: weights interpolated between start and end"
    name, x, y = f"forgetting-{slug(tuning.recipe)}", "forgetting on the kept sets", "gain on the new sets"
    rows: list[list[str | float]] = []
    points: dict[str, Point] = {}
    with drawing(name, 560, 400, [arm.label for arm in tuning.arms]) as (plot, axes):
        for arm in tuning.arms:
            lost, gained, path = arm.mean(lambda c: c.forgetting), arm.mean(lambda c: c.gain), arm.path()
            style, (at_x, at_y) = plot.style(arm.label), (lost.value, gained.value)
            points[arm.label] = at_x, at_y
            thin: Any = {"linewidth": 1, **plot.curve(arm.label)}
            axes.plot(lost.span, [at_y, at_y], **thin)
            axes.plot([at_x, at_x], gained.span, **thin)
            axes.plot(at_x, at_y, style["marker"], markersize=6, **thin)
            if path:
                axes.plot(*zip(*path, strict=True), linestyle=style["linestyle"], marker=".", **thin)
            ends = [("", "") if one.low is None or one.high is None else one.span for one in (lost, gained)]
            rows.append([arm.label, at_x, *ends[0], at_y, *ends[1]])
            rows += [[arm.label, at[0], "", "", at[1], "", ""] for at in path[1:-1]]
        axes.plot(0, 0, "+", color=INK, markersize=9)
        axes.axvline(0, **DASHED)
        axes.axhline(0, **DASHED)
        axes.margins(0.08)
        limits = axes.get_xlim(), axes.get_ylim()
        axes.axline((0, 0), slope=1, **DASHED)
        axes.set(xlim=limits[0], ylim=limits[1])
        add_labels(plot, points)
        return plot.to_figure(caption, ["method", x, "low", "high", y, "low", "high"], rows, x, y)


def _by_set(tuning: FineTuning) -> Table:
    rows = [
        [Cell(f"{side}: {tuning.titles[name]}"), *(_cell(arm.mean(partial(_change, name)), 1) for arm in tuning.arms)]
        for side, sets in (("new", tuning.new), ("kept", tuning.kept))
        for name in sets
    ]
    return Table(["Data set", *(arm.label for arm in tuning.arms)], rows)


def _change(name: str, change: Change) -> float:
    return change.by_set[name]


def _table(tuning: FineTuning) -> Table:
    rows = [
        [
            Cell(arm.label),
            _cell(arm.mean(lambda change: change.gain), better=1),
            _cell(arm.mean(lambda change: change.forgetting), better=-1),
            _cell(arm.mean(lambda change: change.net), better=1),
            _cell(arm.area(), better=1),
            Cell(str(len(arm.curves)), len(arm.curves)),
        ]
        for arm in tuning.arms
    ]
    return Table(["Method", "Gain", "Forgetting", "Gain − forgetting", "Area", "Seeds"], rows)


def _cell(found: SeedMean | None, better: int) -> Cell:
    """Return the mean with its interval below it; `better` is the sign of a good value."""
    if found is None:
        return Cell(MISSING)
    tone: Tone = "neutral" if not found.sign else "good" if found.sign == better else "bad"
    return Cell(digits(found.value, "+"), found.value, tone, note=found.interval("+"))
