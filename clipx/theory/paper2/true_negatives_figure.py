"""Figures of paper 2's Example 2: both loss landscapes with the error, and the boundary of the effect."""

from typing import Any

import numpy as np

from clipx.theory.experiment import Array
from clipx.theory.paper2.true_negatives import THETA, PerLoss, TrueNegativesResult
from clipx.utils.figures import BLUE, GREY, RED, Figures, label_ticks, ordered_colours, panels

ZERO = 1e-3  # height at which the logarithmic axis shows error 0


def draw(result: TrueNegativesResult) -> Figures:
    """Draw the landscapes at one (p2, theta0), and the boundary of the effect (see `largest_p2`) over the grid."""
    landscapes, grid = panels(len(result.landscapes), 2, width=3.9, height=2.4)
    columns = np.reshape(grid, (2, -1)).T
    _landscapes(columns, result)
    settings = result.settings
    point = rf"$p_2$ = {settings.p2:g}, $\theta_0$ = {settings.theta0:.3g}; dotted lines and dots: minima"
    landscapes.legend(*columns[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, title=point)
    boundary, axes = panels(1, width=5.6, height=4.2)
    _boundary(axes, result)
    return {"landscapes": landscapes, "boundary": boundary}


def _landscapes(columns: Any, result: TrueNegativesResult) -> None:
    p2 = result.settings.p2
    for (above, below), (tau, landscape) in zip(columns, result.landscapes.items(), strict=True):
        for values, colour, name in zip(landscape, (BLUE, RED), ("CLIP", "$L_g$, true negatives"), strict=True):
            at = values.argmin()
            above.plot(THETA, (values - values.min()) / np.ptp(values), color=colour, label=name)
            below.plot(THETA[at], max(result.error[at], ZERO), "o", color=colour, zorder=3)
            for axes in (above, below):
                axes.axvline(THETA[at], color=colour, linestyle=":", linewidth=1.2)
        above.set(title=rf"$\tau$ = {tau:g}", ylabel="loss, scaled to 0..1")
        below.plot(THETA, np.maximum(result.error, ZERO), color="black")
        below.set(yscale="log", ylim=(0.8 * ZERO, 1.3), xlabel=r"$\theta$ (radians)", ylabel="top-1 error")
        below.set_yticks([ZERO, 1e-2, 1e-1, 1], ["0", "0.01", "0.1", "1"])
        below.axhline(p2, color=GREY, linestyle="--", linewidth=1)
        below.annotate("$p_2$", (-np.pi, p2), xytext=(2, 2), textcoords="offset points", color=GREY)
        for axes in (above, below):
            axes.set_xticks(np.arange(-2, 3) * np.pi / 2, [r"$-\pi$", r"$-\pi/2$", "0", r"$\pi/2$", r"$\pi$"])


def _boundary(axes: Any, result: TrueNegativesResult) -> None:
    colours = ordered_colours(len(result.grid_errors))
    for (tau, errors), colour in zip(result.grid_errors.items(), colours, strict=True):
        largest = largest_p2(errors, result.p2)
        axes.plot(largest, result.theta0, color=colour, label=rf"$\tau$ = {tau:g}")
        axes.fill_betweenx(result.theta0, result.p2[0], largest, color=colour, alpha=0.12, linewidth=0)
    cross = {"color": "black", "markersize": 8, "markeredgewidth": 2}
    axes.plot(result.settings.p2, result.settings.theta0, "x", label="point of the landscapes", **cross)
    axes.set(xscale="log", xlim=(result.p2[0], 0.25), xlabel="$p_2$, probability of the rare class")
    axes.set(ylim=(0, np.pi / 10), ylabel=r"$\theta_0$ (radians)")
    label_ticks(axes.xaxis, [0.0002, 0.001, 0.005, 0.02, 0.1, 0.25])
    axes.set_title(
        "Left of a line: CLIP's minimum has error $\\geq p_2$, $L_g$'s has error 0.\nRight of it: both have error 0.",
        loc="left",
    )
    axes.legend(loc="lower right")


def largest_p2(errors: PerLoss, p2: Array) -> Array:
    """Return for each theta0 the largest p2 up to which all grid points show the effect; nan if there is none.

    The effect: the error is at least p2 at the minimum of CLIP and 0 at the minimum of L_g.
    """
    exists = (errors.clip >= p2) & (errors.true_negatives == 0)
    count = np.where(exists.all(axis=1), exists.shape[1], exists.argmin(axis=1))
    return np.where(count > 0, p2[np.maximum(count - 1, 0)], np.nan)
