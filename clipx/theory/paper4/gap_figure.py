"""Figures of paper 4's modality gap: slow closure, Lemma 3.1, temperature schemes and early growth."""

from typing import Any

import numpy as np

from clipx.theory.claims import half_width
from clipx.theory.paper4.gap import GapResult, log_squared_fit
from clipx.theory.paper4.gap_flow import beta_of_gamma, growth_rate
from clipx.utils.figures import BLUE, COLOURS, GREY, RED, Figures, label_ticks, ordered_colours, panels


def draw(result: GapResult) -> Figures:
    """Draw the full flow (three panels), the schemes and the growth at t = 0."""
    closure, (left, middle, right) = panels(3)
    _gap_in_time(left, result)
    _log_squared(middle, result)
    _invariant(right, result)
    schemes, axes = panels(1, width=6.4, height=3.8)
    _schemes(axes, result)
    growth, axes = panels(1, width=5.2, height=3.8)
    _growth(axes, result)
    return {"closure": closure, "schemes": schemes, "growth": growth}


def _gap_in_time(axes: Any, result: GapResult) -> None:
    flow = result.flow
    shown = flow.t > 1e-3
    axes.plot(flow.t[shown], flow.gap[shown], color=BLUE, label=r"$\Delta$, distance of the centres")
    axes.plot(flow.t[shown], 2 * flow.gamma[shown], color=RED, linestyle="--", label=r"$2\gamma$, lower bound")
    axes.plot(flow.t[shown], flow.margin[shown], color=GREY, linestyle=":", label=r"smallest margin $\alpha(Z)$")
    axes.set(xscale="log", xlabel="time $t$ of the gradient flow", ylabel="distance, similarity", ylim=(0, None))
    axes.set_title("gap with a learned temperature")
    axes.legend()


def _log_squared(axes: Any, result: GapResult) -> None:
    flow, late = result.flow, result.flow.t >= 100
    x, gap = -1 / np.log(flow.t[late]) ** 2, flow.gap[late]
    slope, start = np.polyfit(x, gap, 1)
    axes.plot(x, gap, "o", color=BLUE, markersize=4, label=r"$\Delta(t)$, $t \geq 100$")
    axes.plot(x, slope * x + start, color=GREY, label=f"line, $R^2$ = {log_squared_fit(flow.t, flow.gap):.4f}")
    axes.set(xlabel=r"$-1/\log(t)^2$", ylabel=r"$\Delta$, distance of the centres")
    top = axes.secondary_xaxis("top")
    powers = [k for k in (2, 3, 4, 6, 9, 12) if flow.t[-1] >= 10.0**k]
    top.set_xticks([-1 / np.log(10.0**k) ** 2 for k in powers], [f"$10^{{{k}}}$" for k in powers])
    top.set_xlabel("time $t$")
    axes.set_title("Theorem 3.2 (the paper's Figure 4a)")
    axes.legend()


def _invariant(axes: Any, result: GapResult) -> None:
    flow, settings = result.flow, result.settings
    gamma = np.geomspace(flow.gamma.min(), flow.gamma.max(), 200)
    axes.plot(gamma, beta_of_gamma(gamma, settings.gamma0, settings.beta0), color=GREY, label="closed form (6)")
    axes.plot(flow.gamma[::6], flow.beta[::6], "o", color=BLUE, markersize=4, label="integrated flow")
    deviation = np.abs(flow.beta / beta_of_gamma(flow.gamma, settings.gamma0, settings.beta0) - 1).max()
    axes.set(xscale="log", yscale="log", xlabel=r"$\gamma$, half the gap", ylabel=r"$\beta$, inverse temperature")
    label_ticks(axes.xaxis, [0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
    label_ticks(axes.yaxis, [10, 20, 50, 100])
    axes.set_title(f"invariant of Lemma 3.1: deviation {deviation:.1e}")
    axes.legend()


def _schemes(axes: Any, result: GapResult) -> None:
    beta0, beta1 = result.settings.scheme_beta0, result.settings.scheme_beta1
    names = {
        "learned, beta = exp(nu)": r"learned, $\beta = e^\nu$: $\Theta(1/\log^2 t)$",
        "learned, beta = nu": r"learned, $\beta = \nu$: $\Theta(t^{-\log t})$",
        "constant beta0": rf"constant, $\beta$ = {beta0:g}: exponential",
        "linear beta0 to beta1, ending at t": (
            f"linear schedule of length $t$,\n$\\beta$ = {beta0:g} to {beta1:g}: exponential"
        ),
    }
    for (name, gamma), colour, style in zip(result.schemes.items(), COLOURS, ("-", "--", "-.", ":"), strict=False):
        shown = (result.t > 0) & (gamma > 1e-12)
        axes.plot(result.t[shown], gamma[shown], style, color=colour, label=names[name], linewidth=2)
    axes.set(xscale="log", yscale="log", xlabel="time $t$", ylabel=r"$\gamma$, half the gap", ylim=(1e-8, 1.3))
    axes.set_title(r"Appendix C, $\ell(m) = e^{-m}$")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.05))


def _growth(axes: Any, result: GapResult) -> None:
    gamma0 = result.settings.gamma0
    beta = np.linspace(1, 1.1 * result.betas.max(), 120)
    colours = ordered_colours(len(result.growth))
    for (d, row), colour, marker in zip(result.growth.items(), colours, "os^Dv", strict=False):
        axes.plot(beta, [growth_rate(float(b), gamma0, d) for b in beta], color=colour, label=f"d = {d}")
        rates = np.array([g.gamma_rates for g in row])
        axes.errorbar(result.betas, rates.mean(axis=1), half_width(rates), fmt=marker, color=colour, capsize=3)
    label = f"{result.settings.draws} draws of n = {result.settings.growth_n}, 95% interval"
    axes.errorbar([], [], [], fmt="o", color=GREY, capsize=3, label=label)
    axes.plot([], [], color=GREY, label=r"closed form, $n \to \infty$")
    axes.set(xlabel=r"$\beta_0$, inverse temperature", ylabel=r"$d\gamma/dt$ at $t = 0$", ylim=(0, None))
    axes.set_title(rf"Theorem 3.3: the gap grows from random features ($\gamma_0$ = {gamma0:g})")
    axes.legend()
