"""Figure of paper 2's Example 1: data, losses on a line from g1's solution to f*, error by share of mislabels."""

from typing import Any

import numpy as np

from clipx.theory.experiment import Array
from clipx.theory.paper2.robust_g import LINE, SIGN, RobustGResult, X
from clipx.utils.figures import BLUE, GREEN, GREY, RED, Figures, annotate, panels

COLOUR = {"log1p": RED, "ratio": BLUE}
NAME = {"log1p": r"$g_1 = \log(1+x)$", "ratio": r"$g_2 = x/(1+x)$"}
MARKERS = {1: ("o", GREEN), -1: ("s", "black")}  # by sign of z
HOLLOW: Any = {"markersize": 7, "markerfacecolor": "none", "markeredgewidth": 1.6}


def draw(result: RobustGResult) -> Figures:
    """Draw the three panels."""
    figure, (left, middle, right) = panels(3, width=4.2, height=3.6)
    _data(left, result)
    _losses(middle, result)
    _errors(right, result)
    return {"example_1": figure}


def _data(axes: Any, result: RobustGResult) -> None:
    x2 = np.linspace(-1.5, 3.5, 400)
    for sign, (marker, colour) in MARKERS.items():
        axes.plot(*X[sign == SIGN, :2].T, marker, color=colour, label=f"z = {sign / 2:g}", **HOLLOW)
    label = f"mislabelled,\nprobability {result.settings.mislabelled:g}"
    annotate(axes, label, (X[2, 0], X[2, 1]), ("data", "data"), (10, -8))
    for name, minimum in result.minima.items():
        label = f"boundary of {NAME[name]}: error {minimum.error:.4f}"
        axes.plot(*_boundary(minimum.abc, x2), color=COLOUR[name], label=label)
    _zoom(axes, result)
    axes.set(xlim=(-0.6, 1.6), ylim=(-1.5, 16.5), xlabel="$x_1$", ylabel="$x_2$")
    axes.legend(loc="upper left", fontsize=8)


def _zoom(axes: Any, result: RobustGResult) -> None:
    """Enlarge the region around (1, 1), where images of different labels are 0.01 apart."""
    inset = axes.inset_axes((0.62, 0.28, 0.36, 0.26))
    for name, minimum in result.minima.items():
        inset.plot(*_boundary(minimum.abc, np.linspace(0.9, 1.1, 50)), color=COLOUR[name])
    for (marker, colour), at in zip(MARKERS.values(), (0, 3), strict=True):
        inset.plot(*X[at, :2], marker, color=colour, **HOLLOW)
    inset.set(xlim=(0.98, 1.03), ylim=(0.975, 1.025), xticks=[1.0, 1.02], yticks=[1.0])
    inset.tick_params(labelsize=8)
    axes.indicate_inset_zoom(inset, edgecolor=GREY)


def _boundary(abc: Array, x2: Array) -> tuple[Array, Array]:
    """Points with a x1 + b x2 + c = 0."""
    a, b, c = abc
    return -(b * x2 + c) / a, x2


def _losses(axes: Any, result: RobustGResult) -> None:
    for name, losses in result.losses.items():
        axes.plot(LINE, losses, color=COLOUR[name], label=NAME[name])
    for at, text in ((0, r"minimum of $g_1$"), (1, r"$f^*$")):
        axes.axvline(at, color=GREY, linestyle=":", linewidth=1)
        annotate(axes, text, (at, 0.99), ("data", "axes fraction"), (3, -9))
    axes.set(yscale="log", xlim=(LINE[0], LINE[-1]), ylabel="loss $L_g$ (B = 2)")
    axes.set_xlabel(r"position between the minimum of $g_1$ (0) and $f^*$ (1)")
    axes.legend(loc="center", bbox_to_anchor=(0.72, 0.6))


def _errors(axes: Any, result: RobustGResult) -> None:
    for name, errors in result.errors.items():
        axes.plot(result.shares, errors, "o-", color=COLOUR[name], label=NAME[name])
    share, shares = result.settings.mislabelled, result.shares
    axes.plot(shares, shares / 2, "--", color="black", linewidth=1, label="if only mislabelled images are wrong")
    axes.axvline(share, color=GREY, linestyle=":", linewidth=1)
    annotate(axes, f"{share:g}", (share, 0.02), ("data", "axes fraction"), (3, 0))
    axes.set(xscale="log", yscale="log", ylabel="top-1 error at the minimum")
    axes.set_xlabel("mislabelled share of the images with z = 0.5")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.93))
