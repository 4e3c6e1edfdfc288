"""The page and the CSV of `clipx report scaling`, and the report's section on ladders."""

import math

import numpy as np

from clipx.errors import UserError
from evaluation.analyses.ladder_runs import NO_SETTING
from evaluation.analyses.power_law import BEYOND, Interval, common_range, difference
from evaluation.analyses.scaling import AGAINST, LEAST, ArmErrors, Gain, Ladder, find_ladders
from evaluation.report.blocks import Block, Cell, Document, Figures, Section, Table, Text
from evaluation.report.figures.scaling import error_figure, gain_figure
from evaluation.report.figures.svg import slug
from evaluation.report.pages.comparison import difference_cell
from evaluation.runs.description import MISSING, digits
from evaluation.runs.reader import Run

RULE = (
    "x: {x}. Law of the error: a (x + b)^c + d, least squares on the means over the seeds; 95% intervals: Student's t "
    "over the seeds' curves. With four points b is 0. Predicted: the error at the largest point, from the smaller "
    "points; its interval is that of measured - predicted, paired by seed. Gain: error of the reference minus error of "
    "the arm at the same point, paired by seed; its line and band are the difference of the two laws at the same x. "
    "Crossover: the largest x at which the two laws cross, searched up to four times the largest point; its interval "
    "is the range around it in which the band contains 0; without laws, the points between which the measured gain "
    "changes its sign. ▲ and ▼: the whole interval of a gain is above or below 0."
)
FOOTER = "A law that does not fit is dotted, and its problem is in the table."


def build_scaling(ladders: list[Ladder], left_out: list[str], least: float) -> Document:
    """Return the document of `clipx report scaling`; `least`: smallest effect of interest, drawn as dotted lines."""
    sections = [Section(title(ladder), blocks(ladder, least, k)) for k, ladder in enumerate(ladders, 1)]
    if left_out:
        sections.append(Section("Left out", [Text(line, "muted") for line in left_out]))
    return Document("Effect as a function of scale", " ".join(lead(ladder) for ladder in ladders), sections, FOOTER)


def scaling_section(runs: list[Run]) -> list[Block]:
    """Return the blocks of all ladders among the runs of a report; [] without one."""
    try:
        ladders, left_out = find_ladders(runs)
    except UserError as error:
        return [Text(str(error), "muted")]
    numbered = enumerate(ladders, 1)
    return [
        *(block for k, ladder in numbered for block in (Text(title(ladder)), *blocks(ladder, LEAST, k))),
        *(Text(line, "muted") for line in left_out),
    ]


def title(ladder: Ladder) -> str:
    """Return recipe, the other axes' values, axis, points and score in one line."""
    points = f"{ladder.axis} at {len(ladder.points)} points"
    return f"{ladder.recipe} ({_others(ladder)}): {points}; error = 1 - mean of {ladder.score}"


def lead(ladder: Ladder) -> str:
    """Return one or two sentences: gains at the largest point, predictions that held."""
    signs = [gain.at[-1].sign for gain in ladder.gains]
    sentences = []
    if signs:
        sentences.append(
            f"At the largest point of {ladder.axis}, {signs.count(1)} of {len(signs)} arms are better than "
            f"{ladder.reference} and {signs.count(-1)} worse (95% interval of the gain; not corrected for the number "
            "of arms)."
        )
    held_out = [arm.held_out for arm in ladder.arms if arm.held_out and not arm.held_out.problem]
    if held_out:
        inside = sum(one.inside for one in held_out)
        sentences.append(
            f"For {inside} of {len(held_out)} arms the error at the largest point lies in the interval predicted from "
            "the smaller points."
        )
    return " ".join(sentences)


def blocks(ladder: Ladder, least: float, number: int) -> list[Block]:
    """Return figures and tables of one ladder; `number` makes the names of its figures unique."""
    x, prefix = AGAINST[ladder.against], f"scaling-{number}"
    caption = f"Error against {x}, mean of the seeds with 95% intervals; diamonds: predicted from the smaller points"
    figures = [error_figure(f"{prefix}-error", caption, ladder.arms, x, "error")]
    for gain in ladder.gains:
        caption = f"Gain of {gain.arm} over {ladder.reference}; dotted: smallest effect of interest, ±{least:g}"
        if gain.at_other_x:
            caption += f"; points: same {ladder.axis}, line and band: same {x}"
        figures.append(gain_figure(f"{prefix}-{slug(gain.arm)}", caption, gain, least, x, "gain"))
    tables = [laws(ladder), *([gains(ladder)] if ladder.gains else [])]
    return [Text(RULE.format(x=x), "muted"), Figures(figures), *tables]


def laws(ladder: Ladder) -> Table:
    """Return one row per arm: the law's parameters, the prediction of the largest point, the problem."""
    rows = [
        [
            Cell(arm.arm),
            *_parameters(arm),
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
    """Return the crossover of the laws with its interval, or without laws the points around the last change of sign."""
    if gain.laws is None:
        ends = " and ".join(map(_number, gain.sign_change or ()))
        return f"between {ends}; {gain.problem}" if ends else gain.problem
    found = gain.crossover
    if found is None:
        _, low, high = difference(*gain.laws, np.geomspace(*common_range(*gain.laws), 101))
        return "undecided: the band contains 0 everywhere" if np.all((low <= 0) & (high >= 0)) else "none"
    smallest, largest = common_range(*gain.laws)
    start = _number(found.low) if found.low else f"< {_number(smallest)}"
    end = _number(found.high) if math.isfinite(found.high) else f"> {_number(BEYOND * largest)}"
    return f"{_number(found.value)} [{start}, {end}]"


def scaling_table(ladders: list[Ladder]) -> list[list[object]]:
    """Return a header and a row per ladder, arm, point and seed: x and error."""
    table: list[list[object]] = [["recipe", "other axes", "axis", "point", "arm", "seed", "against", "x", "error"]]
    for ladder in ladders:
        for arm in ladder.arms:
            for point, x, errors in zip(ladder.points, arm.x, arm.errors, strict=True):
                of_point = [ladder.recipe, _others(ladder), ladder.axis, point, arm.arm]
                table += [[*of_point, seed, ladder.against, x, error] for seed, error in errors.items()]
    return table


def _others(ladder: Ladder) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in ladder.others.items() if value != NO_SETTING)


def _parameters(arm: ArmErrors) -> list[Cell]:
    law = arm.law
    if law is None or arm.problem:
        return [Cell(MISSING)] * 4
    b, d = (_interval(one, law.is_at_bound(name)) for name, one in (("b", law.b), ("d", law.d)))
    return [_interval(law.a), b if law.with_b else Cell("0", 0.0, note="fixed"), _interval(law.c), d]


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


def _interval(one: Interval, at_bound: bool = False) -> Cell:
    note = f"[{_number(one.low)}, {_number(one.high)}]{', at its bound' * at_bound}"
    return Cell(_number(one.value), one.value, note=note)


def _number(value: float) -> str:
    """Format a number; a million or more, as a and b may be, in scientific notation."""
    return f"{'-' * (value < 0)}∞" if math.isinf(value) else f"{value:.2e}" if abs(value) >= 1e6 else digits(value)
