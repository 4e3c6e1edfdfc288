"""Example 2: both landscapes with the error, and the boundary up to which CLIP is pulled away."""

from typing import TYPE_CHECKING

import numpy as np

from clipx.theory.figure_style import BLUE, GREY, RED, ordered, panels, plain_ticks, styled
from clipx.theory.paper1.case_study import Array
from clipx.theory.paper2.true_negatives import THETA, TrueNegativesResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(result: TrueNegativesResult) -> "dict[str, Figure]":
    with styled():
        return {"landscapes": _landscapes(result), "boundary": _boundary(result)}


def _landscapes(result: TrueNegativesResult) -> "Figure":
    from matplotlib.ticker import MultipleLocator

    settings = result.settings
    figure, grid = panels(len(settings.taus), 2, width=3.9, height=2.4)
    for axes, (tau, landscape) in zip(np.reshape(grid, (2, -1)).T, result.landscapes.items(), strict=True):
        for values, colour, name in (
            (landscape.clip, BLUE, "CLIP"),
            (landscape.true_negatives, RED, "$L_g$, true negatives"),
        ):
            scaled = (values - values.min()) / np.ptp(values)
            axes[0].plot(THETA, scaled, color=colour, label=name)
            at = values.argmin()
            for panel in axes:
                panel.axvline(THETA[at], color=colour, linestyle=":", linewidth=1.2)
            axes[1].plot(THETA[at], max(result.error[at], 1e-3), "o", color=colour, zorder=3)
        axes[1].plot(THETA, np.maximum(result.error, 1e-3), color="black")
        axes[0].set(title=rf"$\tau$ = {tau:g}", ylabel="loss, scaled to 0..1")
        axes[1].set(yscale="log", ylim=(0.8e-3, 1.3), xlabel=r"$\theta$ (radians)", ylabel="top-1 error")
        axes[1].set_yticks([1e-3, 1e-2, 1e-1, 1], ["0", "0.01", "0.1", "1"])
        axes[1].axhline(settings.p2, color=GREY, linestyle="--", linewidth=1)
        axes[1].annotate("$p_2$", (-np.pi, settings.p2), xytext=(2, 2), textcoords="offset points", color=GREY)
        for panel in axes:
            panel.xaxis.set_major_locator(MultipleLocator(np.pi / 2))
            panel.set_xticks(np.arange(-2, 3) * np.pi / 2, [r"$-\pi$", r"$-\pi/2$", "0", r"$\pi/2$", r"$\pi$"])
    handles, labels = np.reshape(grid, (2, -1))[0, 0].get_legend_handles_labels()
    point = rf"$p_2$ = {settings.p2:g}, $\theta_0$ = {settings.theta0:.3g}; dotted lines and dots: minima"
    figure.legend(handles, labels, loc="outside lower center", ncols=2, title=point)
    return figure


def _boundary(result: TrueNegativesResult) -> "Figure":
    figure, axes = panels(1, width=5.6, height=4.2)
    for (tau, clip), colour in zip(result.clip_error.items(), ordered(len(result.clip_error)), strict=True):
        largest = largest_p2(clip, result.true_negatives_error[tau], result.p2)
        axes.plot(largest, result.theta0, color=colour, label=rf"$\tau$ = {tau:g}")
        axes.fill_betweenx(result.theta0, result.p2[0], largest, color=colour, alpha=0.12, linewidth=0)
    settings = result.settings
    axes.plot(
        settings.p2,
        settings.theta0,
        "x",
        color="black",
        markersize=8,
        markeredgewidth=2,
        label="the point of the landscapes",
    )
    axes.set(
        xscale="log",
        xlim=(result.p2[0], 0.25),
        ylim=(0, np.pi / 10),
        xlabel="$p_2$, probability of the rare class",
        ylabel=r"$\theta_0$ (radians)",
    )
    plain_ticks(axes.xaxis, [0.0002, 0.001, 0.005, 0.02, 0.1, 0.25])
    axes.set_title(
        "Left of a line CLIP's minimum has error $\\geq p_2$, $L_g$'s has 0;\nright of it both have error 0", loc="left"
    )
    axes.legend(loc="lower right")
    return figure


def largest_p2(clip: Array, negatives: Array, p2: Array) -> Array:
    """For each theta0, the largest p2 up to which the effect exists without a gap; nan if nowhere [theta0]."""
    exists = (clip >= p2) & (negatives == 0)
    count = np.where(exists.all(axis=1), exists.shape[1], exists.argmin(axis=1))
    return np.where(count > 0, p2[np.maximum(count - 1, 0)], np.nan)
