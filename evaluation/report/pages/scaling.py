"""The page and the CSV of `clipx report scaling`, and the report's section on ladders."""

import math

from clipx.errors import UserError
from evaluation.analyses.power_law import Interval
from evaluation.analyses.scaling import AGAINST, LEAST, ArmErrors, Gain, Ladder, find_ladders
from evaluation.report.blocks import Block, Cell, Document, Figures, Section, Table, Text
from evaluation.report.figures.scaling import error_figure, gain_figure
from evaluation.report.figures.svg import slug
from evaluation.report.pages.comparison import difference_cell
from evaluation.runs.description import MISSING, digits
from evaluation.runs.reader import Run

RULE = (
    "Law of the error: a (x + b)^c + d, least squares on the means over the seeds; 95% intervals: Student's t over "
    "the seeds' curves. With four points b is 0. Predicted: the mean error at the largest point, from the smaller "
    "points; its interval is for a mean over the same number of seeds. Gain: error of the reference minus error of the "
    "arm, paired by seed; its band is that of the difference of the two laws. Crossover: the largest x at which the "
    "two laws cross, searched up to four times the largest point; its interval is the range around it in which the "
    "band contains 0. ▲ and ▼: the whole interval of a gain is above or below 0."
)
FOOTER = "A law that does not fit is dotted, and its problem is in the table."


def build_scaling(ladders: list[Ladder], left_out: list[str], least: float) -> Document:
    """Return the document of `clipx report scaling`; `least`: smallest effect of interest, drawn as dotted lines."""
    sections = [Section(title(ladder), [Text(RULE, "muted"), *blocks(ladder, least)]) for ladder in ladders]
    if left_out:
        sections.append(Section("Left out", [Text(line, "muted") for line in left_out]))
    return Document("Effect as a function of scale", " ".join(lead(ladder) for ladder in ladders), sections, FOOTER)


def scaling_section(runs: list[Run]) -> list[Block]:
    """Return the blocks of all ladders among the runs of a report; [] without one."""
    try:
        ladders, _ = find_ladders(runs)
    except UserError as error:
        return [Text(str(error), "muted")]
    found = [block for ladder in ladders for block in (Text(title(ladder)), *blocks(ladder, LEAST))]
    return [Text(RULE, "muted"), *found] if found else []


def title(ladder: Ladder) -> str:
    """Return recipe, axis, points and score in one line."""
    return f"{ladder.recipe}: {len(ladder.points)} points of {ladder.axis}, error = 1 - {ladder.score}"


def lead(ladder: Ladder) -> str:
    """Return one or two sentences: gains at the largest point, predictions that held."""
    signs = [gain.at[-1].sign for gain in ladder.gains]
    held_out = [arm.held_out for arm in ladder.arms if arm.held_out and not arm.held_out.problem]
    inside = sum(one.inside for one in held_out)
    of_arms = f"At the largest point of {ladder.axis}, {signs.count(1)} of {len(signs)} arms are better than "
    sentence = f"{of_arms}{ladder.reference} and {signs.count(-1)} worse. " if signs else ""
    return f"{sentence}{inside} of {len(held_out)} predictions of the largest point contain the measured error."


def blocks(ladder: Ladder, least: float) -> list[Block]:
    """Return figures and tables of one ladder."""
    x, prefix = AGAINST[ladder.against], slug(f"scaling-{ladder.recipe}-{ladder.axis}-{ladder.reference}")
    caption = f"Error against {x}, mean of the seeds with 95% intervals; diamonds: predicted from the smaller points"
    figures = [error_figure(f"{prefix}-error", caption, ladder.arms, x, "error")]
    for gain in ladder.gains:
        caption = f"Gain of {gain.arm} over {ladder.reference}; dotted: smallest effect of interest, ±{least:g}"
        figures.append(gain_figure(f"{prefix}-{slug(gain.arm)}", caption, gain, least, x, "gain"))
    return [Figures(figures), laws(ladder), *([gains(ladder)] if ladder.gains else [])]


def laws(ladder: Ladder) -> Table:
    """Return one row per arm: the law's parameters, the prediction of the largest point, the problem."""
    rows = [
        [
            Cell(arm.arm),
            *(_interval(one) for one in _parameters(arm)),
            *_held_out(arm),
            Cell(arm.problem or "none", tone="bad" if arm.problem else ""),
        ]
        for arm in ladder.arms
    ]
    return Table(["Arm", "a", "b", "c", "d", "Predicted", "Measured", "Inside", "Problem"], rows)


def gains(ladder: Ladder) -> Table:
    """Return one row per arm: its gain over the reference at each point, and the crossover."""
    rows = [[Cell(gain.arm), *map(difference_cell, gain.at), Cell(crossover_text(gain))] for gain in ladder.gains]
    return Table([f"Gain over {ladder.reference}", *ladder.points, "Crossover"], rows)


def crossover_text(gain: Gain) -> str:
    """Return the crossover with its interval, `none` if the laws do not cross, or `no laws` if there are none."""
    if gain.laws is None:
        return "no laws"
    found = gain.crossover
    return "none" if found is None else f"{_number(found.value)} [{_number(found.low)}, {_number(found.high)}]"


def scaling_table(ladders: list[Ladder]) -> list[list[object]]:
    """Return a header and a row per ladder, arm, point and seed: x and error."""
    table: list[list[object]] = [["recipe", "axis", "point", "arm", "seed", "against", "x", "error"]]
    for ladder in ladders:
        for arm in ladder.arms:
            for point, x, errors in zip(ladder.points, arm.x, arm.errors, strict=True):
                of_point = [ladder.recipe, ladder.axis, point, arm.arm]
                table += [[*of_point, seed, ladder.against, x, error] for seed, error in errors.items()]
    return table


def _parameters(arm: ArmErrors) -> list[Interval | None]:
    return [None] * 4 if arm.law is None or arm.problem else [arm.law.a, arm.law.b, arm.law.c, arm.law.d]


def _held_out(arm: ArmErrors) -> list[Cell]:
    if arm.held_out is None:
        return [Cell(MISSING)] * 3
    inside, measured = arm.held_out.inside, Cell(digits(arm.held_out.measured), arm.held_out.measured)
    if arm.held_out.problem:
        return [Cell(MISSING, note=arm.held_out.problem), measured, Cell(MISSING)]
    return [
        _interval(arm.held_out.predicted),
        measured,
        Cell("yes" if inside else "no", tone="good" if inside else "bad"),
    ]


def _interval(one: Interval | None) -> Cell:
    if one is None:
        return Cell(MISSING)
    return Cell(_number(one.value), one.value, note=f"[{_number(one.low)}, {_number(one.high)}]")


def _number(value: float) -> str:
    """Format a number; a million or more, as a and b may be, in scientific notation."""
    return f"{'-' * (value < 0)}∞" if math.isinf(value) else f"{value:.2e}" if abs(value) >= 1e6 else digits(value)
