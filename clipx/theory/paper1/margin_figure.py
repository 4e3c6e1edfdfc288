"""Margin against tau and time; errors of the square loss."""

from typing import TYPE_CHECKING, Any

import numpy as np

from clipx.theory.figure_style import COLOURS, GREY, SKY, ordered, panels, plain_ticks, reference, styled
from clipx.theory.paper1.margin import MarginResult
from clipx.theory.paper1.square_loss import SCORES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(result: MarginResult) -> "dict[str, Figure]":
    with styled():
        figure, (left, right) = panels(2, width=4.8)
        _against_tau(left, result)
        _against_time(right, result)
        return {"margin": figure, "square_loss": _square_loss(result)}


def _against_tau(axes: Any, result: MarginResult) -> None:
    taus, gamma = np.array(result.settings.taus), result.settings.gamma
    for (lam, margins), colour, marker in zip(result.final.items(), COLOURS, "os^Dv", strict=False):
        name = "CLIP" if lam == 0 else rf"CLIP + positive term, $\lambda$ = {lam:g}"
        axes.plot(taus, margins, marker=marker, color=colour, label=name)
    at = taus.argmin()
    guide = result.final[0.0][at] / taus[at] * taus
    axes.plot(taus, guide, color=GREY, linestyle="--", linewidth=1, label=r"proportional to $\tau$")
    for y, label in ((gamma, r"$\gamma$"), (gamma / 2, r"$\gamma/2$")):
        reference(axes, y, label)
    axes.set(xscale="log", yscale="log", xlabel=r"temperature $\tau$", ylabel="margin after training")
    axes.set_xlim(0.75 * taus.min(), 1.15 * taus.max())
    plain_ticks(axes.xaxis, sorted(taus))
    plain_ticks(axes.yaxis, [0.1, 0.2, 0.5, 1.0, 2.0])
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.999))


def _against_time(axes: Any, result: MarginResult) -> None:
    taus, gamma = result.settings.taus, result.settings.gamma
    lam = min(lam for lam in result.trained if lam > 0)
    for at, (tau, colour) in enumerate(zip(taus, ordered(len(taus)), strict=True)):
        for weight, style in ((0.0, "-"), (lam, "--")):
            descent = result.trained[weight]
            label = rf"$\tau$ = {tau:g}" if weight == 0 else None
            axes.plot(descent.time[:, at], descent.margin[:, at], style, color=colour, label=label)
    axes.plot([], [], "-", color=GREY, label="CLIP")
    axes.plot([], [], "--", color=GREY, label=rf"with the term, $\lambda$ = {lam:g}")
    for y, label in ((gamma, r"$\gamma$"), (gamma / 2, r"$\gamma/2$")):
        reference(axes, y, label)
    axes.set(xscale="log", xlabel="time of gradient descent (sum of step sizes)", ylabel="margin")
    axes.legend(loc="upper left", bbox_to_anchor=(0.02, 0.97), ncols=2)
    axes.set_xlim(left=1e-3)
    axes.set_ylim(top=1.5 * max(gamma, *(d.margin.max() for d in result.trained.values())))


def _square_loss(result: MarginResult) -> "Figure":
    figure, axes = panels(1, width=6.2)
    names, width = list(SCORES), 0.25
    for group, (geometry, errors) in enumerate(result.square_errors.items()):
        for at, (score, colour) in enumerate(zip(names, COLOURS, strict=False)):
            x = group + (at - 1.5) * width * 0.9
            label = f"square loss, {score}" if group == 0 else None
            axes.bar(x, errors[score], 0.8 * width, color=colour, label=label)
            axes.annotate(f"{errors[score]:.3f}", (x, errors[score]), ha="center", va="bottom", fontsize=8.5)
        x, error = group + 1.5 * width * 0.9, result.clip_errors[geometry]
        axes.bar(x, error, 0.8 * width, color=SKY, label="CLIP, inner product" if group == 0 else None)
        axes.annotate(f"{error:.3f}", (x, error), ha="center", va="bottom", fontsize=8.5)
    bound = f"bound 1/(3K), K = {result.settings.K}"
    axes.axhline(1 / (3 * result.settings.K), color="black", linestyle="--", linewidth=1, label=bound)
    axes.set_xticks(range(len(result.square_errors)), [f"classes: {g}" for g in result.square_errors])
    axes.set(ylabel="zero-shot top-1 error (probability)", xlim=(-0.62, 1.5))
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper left")
    return figure
