"""Figures of paper 5's PMI problem: loss above the bound against size, and fitted similarities next to the PMI."""

import numpy as np

from clipx.theory.paper5.pmi import PmiResult
from clipx.utils.figures import BLUE, RED, Figure, Figures, label_ticks, panels, reference_line

FLOOR = 1e-6  # nats; smaller distances to the bound are drawn here


def draw(result: PmiResult) -> Figures:
    """Draw the distances to the bound and the similarities."""
    return {"excess": _excess(result), "similarities": _similarities(result)}


def _excess(result: PmiResult) -> Figure:
    settings = result.settings
    figure, (by_size, by_parameters) = panels(2, width=4.8, height=3.7)
    points = f"weighted points in {settings.points_d} dimensions"
    # excess, parameters per unit of size, symbol, colour, marker
    families = {
        "inner product": (result.inner_product, 1, "d", RED, "o"),
        points: (result.point_sets, settings.points_d + 1, "M", BLUE, "s"),
    }
    for axes in (by_size, by_parameters):
        for name, (excess, parameters, symbol, colour, marker) in families.items():
            x = [size * (parameters if axes is by_parameters else 1) for size in excess]
            y = [max(value, FLOOR) for value in excess.values()]
            axes.plot(x, y, marker=marker, color=colour, label=name)
            for size, *at in zip(excess, x, y, strict=True):
                offset = {"xytext": (6, 5), "textcoords": "offset points"}
                axes.annotate(f"{symbol} = {size}", at, fontsize=8.5, color=colour, **offset)
        axes.set(xscale="log", yscale="log", ylabel="loss above the bound $-I(X;Y)$ (nats)", ylim=(FLOOR / 2, 3))
        reference_line(axes, FLOOR, f"at most {FLOOR:g} above the bound")
    by_size.set_xlabel("dimension d, or number of points M")
    by_parameters.set_xlabel("parameters per instance")
    label_ticks(by_size.xaxis, [1, 2, 4, 8, 16])
    label_ticks(by_parameters.xaxis, [2, 4, 8, 16, 32])
    by_size.set_title(f"N = {settings.N} instances, $I(X;Y)$ = {result.mutual_information:.3f} nats")
    by_size.legend(loc="lower left", bbox_to_anchor=(0, 0.1))
    return figure


def _similarities(result: PmiResult) -> Figure:
    inner, sets = result.fitted.values()
    matrices = {
        "PMI": result.pmi,
        f"inner product, d = {min(result.settings.d)}": inner,
        f"point sets, M = {max(result.settings.M)}": sets,
    }
    figure, grid = panels(3, width=3.4, height=3.3)
    limit = float(np.abs(result.pmi).max())
    for axes, (name, values) in zip(grid, matrices.items(), strict=True):
        image = axes.imshow(values, cmap="PuOr", vmin=-limit, vmax=limit)
        deviation = f"\nlargest deviation {np.abs(values - result.pmi).max():.2f} nats"
        axes.set(title=name if name == "PMI" else name + deviation, xlabel="text y", ylabel="image x")
        axes.grid(visible=False)
    figure.colorbar(image, ax=list(grid), label="nats", shrink=0.8)
    return figure
