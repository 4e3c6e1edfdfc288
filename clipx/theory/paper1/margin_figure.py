"""Figures of paper 1's case study: margins against tau and time; zero-shot errors of the square loss."""

from itertools import cycle
from typing import Any

import numpy as np

from clipx.theory.paper1.margin import MarginResult
from clipx.utils.figures import COLOURS, GREY, Figures, label_ticks, ordered_colours, panels, reference_line


def draw(result: MarginResult) -> Figures:
    """Draw the margins (two panels) and the zero-shot errors."""
    margins, (left, right) = panels(2, width=4.8)
    _against_tau(left, result)
    _against_time(right, result)
    for axes in (left, right):
        reference_line(axes, result.settings.gamma, r"$\gamma$")
        reference_line(axes, result.settings.gamma / 2, r"$\gamma/2$")
    errors, axes = panels(1, width=6.2)
    _zeroshot_errors(axes, result)
    return {"margin": margins, "square_loss": errors}


def _against_tau(axes: Any, result: MarginResult) -> None:
    taus = np.array(result.settings.taus)
    for (lam, margins), colour, marker in zip(result.final.items(), cycle(COLOURS), cycle("os^Dv"), strict=False):
        name = "CLIP" if lam == 0 else rf"CLIP + positive term, $\lambda$ = {lam:g}"
        axes.plot(taus, margins, marker=marker, color=colour, label=name)
    at = taus.argmin()
    guide = result.final[0.0][at] / taus[at] * taus
    axes.plot(taus, guide, color=GREY, linestyle="--", linewidth=1, label=r"proportional to $\tau$")
    axes.set(xscale="log", yscale="log", xlabel=r"temperature $\tau$", ylabel="margin after training")
    axes.set_xlim(0.75 * taus.min(), 1.15 * taus.max())
    label_ticks(axes.xaxis, sorted(taus))
    label_ticks(axes.yaxis, [0.1, 0.2, 0.5, 1.0, 2.0])
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.999))


def _against_time(axes: Any, result: MarginResult) -> None:
    taus = result.settings.taus
    lam = min(result.settings.lambdas)
    for at, (tau, colour) in enumerate(zip(taus, ordered_colours(len(taus)), strict=True)):
        for weight, style in ((0.0, "-"), (lam, "--")):
            descent = result.trained[weight]
            label = rf"$\tau$ = {tau:g}" if weight == 0 else None
            axes.plot(descent.time[:, at], descent.margin[:, at], style, color=colour, label=label)
    axes.plot([], [], "-", color=GREY, label="CLIP")
    axes.plot([], [], "--", color=GREY, label=rf"CLIP + positive term, $\lambda$ = {lam:g}")
    axes.set(xscale="log", xlabel="time of gradient descent (sum of step sizes)", ylabel="margin")
    axes.legend(loc="upper left", bbox_to_anchor=(0.02, 0.97), ncols=2)
    axes.set_xlim(left=1e-3)
    axes.set_ylim(top=1.5 * max(result.settings.gamma, *(d.margin.max() for d in result.trained.values())))


def _zeroshot_errors(axes: Any, result: MarginResult) -> None:
    width, bound = 0.25, 1 / (3 * result.settings.K)
    for group, errors in enumerate(result.zeroshot_errors.values()):
        for at, ((label, error), colour) in enumerate(zip(errors.items(), COLOURS, strict=False)):
            x = group + (at - 1.5) * width * 0.9
            axes.bar(x, error, 0.8 * width, color=colour, label=label if group == 0 else None)
            axes.annotate(f"{error:.3f}", (x, error), ha="center", va="bottom", fontsize=8.5)
    label = f"bound 1/(3K), K = {result.settings.K}"
    axes.axhline(bound, color="black", linestyle="--", linewidth=1, label=label)
    axes.set_xticks(range(len(result.zeroshot_errors)), [f"classes: {g}" for g in result.zeroshot_errors])
    axes.set(ylabel="zero-shot top-1 error (probability)", xlim=(-0.62, 1.5))
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper left")
