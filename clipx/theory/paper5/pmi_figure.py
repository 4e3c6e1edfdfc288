"""Distance to the bound against the number of parameters; the fitted similarities beside the PMI."""

from typing import TYPE_CHECKING

import numpy as np

from clipx.theory.figure_style import BLUE, RED, panels, plain_ticks, reference, styled
from clipx.theory.paper5.pmi import PmiResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOOR = 1e-6  # nats; what is nearer to the bound is drawn here


def draw(result: PmiResult) -> "dict[str, Figure]":
    with styled():
        return {"excess": _excess(result), "similarities": _similarities(result)}


def _excess(result: PmiResult) -> "Figure":
    settings = result.settings
    figure, (by_size, by_numbers) = panels(2, width=4.8, height=3.7)
    arms = (
        ("inner product", result.inner_product, 1, "d", RED, "o"),
        (
            f"weighted points in {settings.points_d} dimensions",
            result.point_sets,
            settings.points_d + 1,
            "M",
            BLUE,
            "s",
        ),
    )
    for axes in (by_size, by_numbers):
        for name, excess, floats, symbol, colour, marker in arms:
            x = [size * (floats if axes is by_numbers else 1) for size in excess]
            y = [max(value, FLOOR) for value in excess.values()]
            axes.plot(x, y, marker=marker, color=colour, label=name)
            for size, at, value in zip(excess, x, y, strict=True):
                near = {"xytext": (6, 5), "textcoords": "offset points"}
                axes.annotate(f"{symbol} = {size}", (at, value), fontsize=8.5, color=colour, **near)
        axes.set(xscale="log", yscale="log", ylabel="loss above the bound $-I(X;Y)$ (nats)", ylim=(FLOOR / 2, 3))
        reference(axes, FLOOR, f"at most {FLOOR:g} above")
    by_size.set_xlabel("dimension d, or number of points M")
    by_numbers.set_xlabel("numbers stored for each instance")
    plain_ticks(by_size.xaxis, [1, 2, 4, 8, 16])
    plain_ticks(by_numbers.xaxis, [2, 4, 8, 16, 32])
    by_size.set_title(f"N = {settings.N} instances, $I(X;Y)$ = {result.mutual_information:.3f} nats")
    by_size.legend(loc="lower left", bbox_to_anchor=(0, 0.1))
    return figure


def _similarities(result: PmiResult) -> "Figure":
    settings = result.settings
    pictures = {"PMI": result.pmi}
    names = (f"inner product, d = {min(settings.d)}", f"point sets, M = {max(settings.M)}")
    pictures |= dict(zip(names, result.fitted.values(), strict=True))
    figure, grid = panels(3, width=3.4, height=3.3)
    limit = float(np.abs(result.pmi).max())
    for axes, (name, values) in zip(grid, pictures.items(), strict=True):
        picture = axes.imshow(values, cmap="PuOr", vmin=-limit, vmax=limit)
        error = np.abs(values - result.pmi).max()
        axes.set(
            title=name if name == "PMI" else f"{name}\nlargest deviation {error:.2f} nats",
            xlabel="text y",
            ylabel="image x",
        )
        axes.grid(visible=False)
    figure.colorbar(picture, ax=list(grid), label="nats", shrink=0.8)
    return figure
