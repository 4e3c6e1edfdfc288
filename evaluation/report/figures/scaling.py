"""Figures of ladders: errors with their laws on logarithmic axes, gain of an arm with its band and crossover."""

import math
from typing import Any

import numpy as np

from clipx.utils.figures import COLOURS, plain_ticks
from evaluation.analyses.comparison import SeedMean, seed_mean
from evaluation.analyses.power_law import BEYOND, PowerLaw, common_range, difference, standard_error
from evaluation.analyses.scaling import ArmErrors, Gain
from evaluation.report.blocks import Data, Figure
from evaluation.report.figures.svg import DASHED, FONT, INK, Drawing, drawing
from evaluation.statistics import t_quantile

DOTTED = (0, (1, 2))  # line style
COLUMNS = ("value", "low", "high")
Rows = list[list[str | float]]


def error_figure(name: str, caption: str, arms: list[ArmErrors], x: str, y: str) -> Figure:
    """Draw each arm's errors with intervals, its law with a band, and its predicted error at the largest point.

    The prediction is an open diamond. A law that should not be used is dotted and has no band.
    """
    rows: Rows = []
    with drawing(name, 420, 300, [arm.arm for arm in arms]) as (plot, axes):
        for arm in arms:
            colour, gid = plot.colours[arm.arm], plot.curve_id(arm.arm)
            estimates = [found for by_seed in arm.errors if (found := seed_mean(by_seed))]
            _points(axes, arm.x, estimates, colour, gid)
            rows += _measured(arm.arm, arm.x, estimates)
            if arm.law is not None:
                rows += _law(plot, axes, arm, arm.law)
            if arm.held_out is not None and not arm.held_out.problem:
                one = arm.held_out.predicted
                low = max(one.low, one.value / 2)  # a logarithmic axis has no 0
                axes.plot([arm.x[-1]] * 2, [low, one.high], color=colour, linewidth=3, alpha=0.3, gid=gid)
                axes.plot(arm.x[-1], one.value, "D", color=colour, markersize=7, markerfacecolor="none", gid=gid)
                rows.append([arm.arm, "predicted", arm.x[-1], one.value, one.low, one.high])
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
        axes.grid(alpha=0.15, color=INK)
        return plot.to_figure(caption, Data(["arm", "kind", x, *COLUMNS], rows), x, y)


def gain_figure(name: str, caption: str, gain: Gain, least: float, x: str, y: str) -> Figure:
    """Draw the gain with intervals and band, lines at 0 and at the smallest effect of interest, and the crossover."""
    with drawing(name, 340, 230) as (plot, axes):
        _points(axes, gain.x, gain.at, COLOURS[0], None)
        rows = _measured("", gain.x, gain.at)
        axes.axhline(0, color=INK, linewidth=0.8)
        for sign in (-1, 1):
            axes.axhline(sign * least, color=INK, linestyle=DOTTED, linewidth=0.8)
        if gain.laws:
            smallest, largest = common_range(*gain.laws)
            found = gain.crossover
            scales = np.geomspace(smallest, max(largest, found.value if found else 0), 100)
            value, low, high = difference(*gain.laws, scales)
            axes.plot(scales, value, color=COLOURS[0], linewidth=1.4)
            axes.fill_between(scales, low, high, color=COLOURS[0], alpha=0.15, linewidth=0)
            rows += [["", "laws", *map(float, row)] for row in zip(scales, value, low, high, strict=True)]
        axes.set_xscale("log")
        axes.margins(0.05, 0.1)
        _mark_crossover(axes, gain)
        plain_ticks(axes.xaxis)
        axes.grid(alpha=0.15, color=INK)
        return plot.to_figure(caption, Data(["", "kind", x, *COLUMNS], rows), x, y)


def _points(axes: Any, x: list[float], estimates: list[SeedMean], colour: str, gid: str | None) -> None:
    for at, one in zip(x, estimates, strict=True):
        axes.plot(at, one.value, "o", color=colour, markersize=4, gid=gid)
        if one.low is not None:
            axes.plot([at, at], [one.low, one.high], color=colour, linewidth=1.2, gid=gid)


def _measured(label: str, x: list[float], estimates: list[SeedMean]) -> Rows:
    return [
        [label, "measured", at, one.value, "" if one.low is None else one.low, "" if one.high is None else one.high]
        for at, one in zip(x, estimates, strict=True)
    ]


def _law(plot: Drawing, axes: Any, arm: ArmErrors, law: PowerLaw) -> Rows:
    scales = np.geomspace(arm.x[0], arm.x[-1], 100)
    value, half = law.at(scales), t_quantile(len(law.errors) - 1) * standard_error(law.influences_at(scales))
    colour, gid = plot.colours[arm.arm], plot.curve_id(arm.arm)
    axes.plot(scales, value, color=colour, linewidth=1.4, linestyle=DOTTED if arm.problem else "-", gid=gid)
    if not arm.problem:
        lower = np.maximum(value - half, value / 2)  # a logarithmic axis has no 0
        axes.fill_between(scales, lower, value + half, color=colour, alpha=0.15, linewidth=0, gid=gid)
    table = zip(scales, value, value - half, value + half, strict=True)
    return [[arm.arm, "law", *map(float, row)] for row in table]


def _mark_crossover(axes: Any, gain: Gain) -> None:
    """Draw a dashed line at the crossover, and its interval as a bar at the bottom, unless both ends are open."""
    found = gain.crossover
    if gain.laws is None or found is None or (found.low == 0 and math.isinf(found.high)):
        return
    smallest, largest = common_range(*gain.laws)
    low = max(found.low, smallest)
    high = found.high if math.isfinite(found.high) else BEYOND * largest
    axes.axvline(found.value, color=COLOURS[3], linestyle=DASHED, linewidth=1)
    mixed = axes.get_xaxis_transform()  # x in data, y as a share of the axes
    axes.plot([low, high], [0.02, 0.02], color=COLOURS[3], linewidth=3, transform=mixed, solid_capstyle="butt")
    axes.text(found.value, 1.01, "crossover", transform=mixed, fontsize=FONT - 1, ha="center")
