"""Example 1: the data, the losses between the two solutions, the error against the mislabelled share."""

from typing import TYPE_CHECKING, Any

import numpy as np

from clipx.theory.case_study import Array
from clipx.theory.figures.style import BLUE, GREEN, GREY, RED, panels, styled
from clipx.theory.robust_g import PATH, SIGN, RobustGResult, X

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOUR = {"log1p": RED, "ratio": BLUE}
NAME = {"log1p": r"$g_1 = \log(1+x)$", "ratio": r"$g_2 = x/(1+x)$"}


def draw(result: RobustGResult) -> "dict[str, Figure]":
    with styled():
        figure, (left, middle, right) = panels(3, width=4.2, height=3.6)
        _data(left, result)
        for name, losses in result.paths.items():
            middle.plot(PATH, losses, color=COLOUR[name], label=NAME[name])
        middle.set(
            yscale="log",
            xlim=(-0.2, 1.25),
            xlabel=r"from $g_1$'s minimum (0) to $f^*$ (1)",
            ylabel=r"loss $L_g$ (B = 2)",
        )
        for at, text in ((0, r"$g_1$'s minimum"), (1, r"$f^*$")):
            middle.axvline(at, color=GREY, linestyle=":", linewidth=1)
            middle.annotate(
                text,
                (at, 0.99),
                xycoords=("data", "axes fraction"),
                xytext=(3, -9),
                textcoords="offset points",
                color=GREY,
                fontsize=8.5,
            )
        middle.legend(loc="center", bbox_to_anchor=(0.42, 0.45))
        for name, errors in result.errors.items():
            right.plot(result.shares, errors, "o-", color=COLOUR[name], label=NAME[name])
        right.plot(
            result.shares, result.shares / 2, color=GREY, linestyle="--", linewidth=1, label="only the mislabelled"
        )
        right.axvline(result.settings.mislabelled, color=GREY, linestyle=":", linewidth=1)
        right.set(
            xscale="log",
            yscale="log",
            xlabel="mislabelled share of the images with z = 0.5",
            ylabel="top-1 error at the minimum",
        )
        right.annotate(
            "the paper's",
            (result.settings.mislabelled, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            color=GREY,
            fontsize=8.5,
        )
        right.legend(loc="upper left")
        return {"example_1": figure}


def _data(axes: Any, result: RobustGResult) -> None:
    x2 = np.linspace(-1.5, 3.5, 400)
    for sign, marker, colour, label in ((1, "o", GREEN, "z = 0.5"), (-1, "s", "black", "z = -0.5")):
        points = X[sign == SIGN]
        axes.plot(
            points[:, 0],
            points[:, 1],
            marker,
            color=colour,
            label=label,
            markersize=7,
            markerfacecolor="none",
            markeredgewidth=1.6,
        )
    axes.annotate(
        f"mislabelled,\nprobability {result.settings.mislabelled:g}",
        X[2, :2],
        xytext=(10, -3),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
    )
    for name, minimum in result.minima.items():
        label = f"boundary of {NAME[name]}: error {minimum.error:.4f}"
        axes.plot(*_line(minimum.abc, x2), color=COLOUR[name], label=label)
    _enlarged(axes, result)
    axes.set(xlim=(-0.6, 1.6), ylim=(-1.5, 16.5), xlabel="$x_1$", ylabel="$x_2$")
    axes.legend(loc="upper left", fontsize=8)


def _enlarged(axes: Any, result: RobustGResult) -> None:
    """Around (1, 1), where two labels are 0.01 apart."""
    inset = axes.inset_axes((0.62, 0.28, 0.36, 0.26))
    x2 = np.linspace(0.9, 1.1, 50)
    for name, minimum in result.minima.items():
        inset.plot(*_line(minimum.abc, x2), color=COLOUR[name])
    inset.plot(*X[0, :2], "o", color=GREEN, markersize=7, markerfacecolor="none", markeredgewidth=1.6)
    inset.plot(*X[3, :2], "s", color="black", markersize=7, markerfacecolor="none", markeredgewidth=1.6)
    inset.set(xlim=(0.98, 1.03), ylim=(0.975, 1.025), xticks=[1.0, 1.02], yticks=[1.0])
    inset.tick_params(labelsize=8)
    axes.indicate_inset_zoom(inset, edgecolor=GREY)


def _line(abc: Array, x2: Array) -> tuple[Array, Array]:
    """Points with a x1 + b x2 + c = 0."""
    a, b, c = abc
    return -(b * x2 + c) / a, x2
