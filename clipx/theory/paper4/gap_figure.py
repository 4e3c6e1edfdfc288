"""Slow closure, the invariant, the schemes and the early growth of the modality gap."""

from typing import TYPE_CHECKING, Any

import numpy as np

from clipx.theory.figure_style import BLUE, COLOURS, GREY, RED, ordered, panels, plain_ticks, styled
from clipx.theory.paper1.case_study import Array
from clipx.theory.paper4.gap import GapResult
from clipx.theory.paper4.gap_claims import slow_line
from clipx.theory.paper4.gap_flow import beta_of_gamma
from clipx.theory.paper4.gap_growth import growth

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(result: GapResult) -> "dict[str, Figure]":
    with styled():
        figure, (left, middle, right) = panels(3)
        _gap_in_time(left, result)
        _line(middle, result)
        _invariant(right, result)
        return {"closure": figure, "schemes": _schemes(result), "growth": _growth(result)}


def _gap_in_time(axes: Any, result: GapResult) -> None:
    flow = result.flow
    seen = flow.t > 1e-3
    axes.plot(flow.t[seen], flow.gap[seen], color=BLUE, label=r"$\Delta$, the centres' distance")
    axes.plot(flow.t[seen], 2 * flow.gamma[seen], color=RED, linestyle="--", label=r"$2\gamma$, its lower bound")
    axes.plot(flow.t[seen], flow.margin[seen], color=GREY, linestyle=":", label=r"smallest margin $\alpha(Z)$")
    axes.set(xscale="log", xlabel="time $t$ of the gradient flow", ylabel="distance, similarity", ylim=(0, None))
    axes.set_title("the gap while the temperature is learned")
    axes.legend()


def _line(axes: Any, result: GapResult) -> None:
    flow, late = result.flow, result.flow.t >= 100
    x, gap = -1 / np.log(flow.t[late]) ** 2, flow.gap[late]
    slope, start = np.polyfit(x, gap, 1)
    axes.plot(x, gap, "o", color=BLUE, markersize=4, label=r"$\Delta(t)$, $t \geq 100$")
    axes.plot(x, slope * x + start, color=GREY, label=f"line, $R^2$ = {slow_line(flow.t, flow.gap):.4f}")
    axes.set(xlabel=r"$-1/\log(t)^2$", ylabel=r"$\Delta$, distance of the centres")
    times = [10.0**k for k in range(2, 13) if flow.t[-1] >= 10.0**k]
    top = axes.secondary_xaxis("top")
    shown = [t for t in times if t in (1e2, 1e3, 1e4, 1e6, 1e9, 1e12)]
    top.set_xticks([-1 / np.log(t) ** 2 for t in shown], [f"$10^{{{round(np.log10(t))}}}$" for t in shown])
    top.set_xlabel("time $t$; Theorem 3.2, as in the paper's Figure 4a")
    axes.legend()


def _invariant(axes: Any, result: GapResult) -> None:
    flow, settings = result.flow, result.settings
    gamma = np.geomspace(flow.gamma.min(), flow.gamma.max(), 200)
    axes.plot(gamma, beta_of_gamma(gamma, settings.gamma0, settings.beta0), color=GREY, label="Lemma 3.1")
    axes.plot(flow.gamma[::6], flow.beta[::6], "o", color=BLUE, markersize=4, label="integrated flow")
    deviation = np.abs(flow.beta / beta_of_gamma(flow.gamma, settings.gamma0, settings.beta0) - 1).max()
    axes.set(xscale="log", yscale="log", xlabel=r"$\gamma$, half the gap", ylabel=r"$\beta$, inverse temperature")
    plain_ticks(axes.xaxis, [0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
    plain_ticks(axes.yaxis, [10, 20, 50, 100])
    axes.set_title(f"the invariant: deviation {deviation:.1e}")
    axes.legend()


def _schemes(result: GapResult) -> "Figure":
    figure, axes = panels(1, width=6.4, height=3.8)
    names = {
        "learned, beta = exp(nu)": r"learned, $\beta = e^\nu$: $\Theta(1/\log^2 t)$",
        "learned, beta = nu": r"learned, $\beta = \nu$: $\Theta(t^{-\log t})$",
        "constant beta0": rf"constant, $\beta$ = {result.settings.scheme_beta0:g}: exponential",
        "linear beta0 to beta1, ending at t": (
            f"linear schedule of length $t$,\n"
            rf"$\beta$ = {result.settings.scheme_beta0:g} to "
            rf"{result.settings.scheme_beta1:g}: exponential"
        ),
    }
    for (name, gamma), colour, style in zip(result.schemes.items(), COLOURS, ("-", "--", "-.", ":"), strict=False):
        seen = (result.t > 0) & (gamma > 1e-12)
        axes.plot(result.t[seen], gamma[seen], style, color=colour, label=names[name], linewidth=2)
    axes.set(xscale="log", yscale="log", xlabel="time $t$", ylabel=r"$\gamma$, half the gap", ylim=(1e-8, 1.3))
    axes.set_title(r"Appendix C, $\ell(m) = e^{-m}$")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.05))
    return figure


def _growth(result: GapResult) -> "Figure":
    figure, axes = panels(1, width=5.2, height=3.8)
    gamma0 = result.settings.gamma0
    beta = np.linspace(1, 1.1 * result.betas.max(), 120)
    for (d, row), colour, marker in zip(result.growth.items(), ordered(len(result.growth)), "os^Dv", strict=False):
        axes.plot(beta, [growth(float(b), gamma0, d) for b in beta], color=colour, label=f"d = {d}")
        means, errors = _interval(np.array([g.by_gamma for g in row]))
        axes.errorbar(result.betas, means, errors, fmt=marker, color=colour, capsize=3)
    drawn = f"{result.settings.draws} draws of n = {result.settings.growth_n}, 95% interval"
    axes.errorbar([], [], [], fmt="o", color=GREY, capsize=3, label=drawn)
    axes.plot([], [], color=GREY, label=r"closed form, $n \to \infty$")
    axes.set(xlabel=r"$\beta_0$, inverse temperature", ylabel=r"$d\gamma/dt$ at $t = 0$", ylim=(0, None))
    axes.set_title(rf"Theorem 3.3: the gap grows from random features ($\gamma_0$ = {gamma0:g})")
    axes.legend()
    return figure


def _interval(draws: Array) -> tuple[Array, Array]:
    """Mean and half the width of its 95% interval over the last axis."""
    return draws.mean(axis=1), 1.96 * draws.std(axis=1, ddof=1) / np.sqrt(draws.shape[1])
