"""Figure 2 of paper 3: sampled pairs, true and estimated popularity, errors against n."""

from typing import Any

import numpy as np

from clipx.theory.paper3.popularity import METHODS, PopularityResult, Sample, mean_error
from clipx.utils.figures import BLUE, GREEN, GREY, RED, Figure, Figures, label_ticks, panels

COLOUR = dict(zip(METHODS, (RED, BLUE, GREEN), strict=True))


def draw(result: PopularityResult) -> Figures:
    """Draw one sample of the smallest n, and the errors of all samples."""
    return {"popularity": _popularity(result), "errors": _errors(result)}


def _popularity(result: PopularityResult) -> Figure:
    from matplotlib.ticker import MaxNLocator

    sample = result.samples[min(result.samples)][0]
    figure, (pairs, true, estimated, both) = panels(4, width=3.6, height=3.2)
    _pairs(pairs, sample)
    high = float(sample.q.max())
    for axes, q, title in ((true, sample.q, "true $q$"), (estimated, sample.q_estimated, r"estimated $\tilde{q}$")):
        picture = axes.tricontourf(*sample.a.T, q, levels=np.linspace(0.0, high * 1.05, 15), cmap="viridis")
        axes.plot(*sample.a.T, ".", color="white", markersize=2.5)
        axes.set(title=f"{title} at the {len(q)} texts", xlabel="$a_1$", ylabel="$a_2$")
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.grid(visible=False)
    figure.colorbar(picture, ax=estimated, label="popularity (sum of densities)", shrink=0.85, ticks=MaxNLocator(6))
    top = 1.05 * max(high, float(sample.q_estimated.max()))
    both.plot([0, top], [0, top], color=GREY, linestyle="--", linewidth=1, label="equal")
    both.plot(sample.q, sample.q_estimated, ".", color=BLUE)
    both.set(xlabel="true $q$", ylabel=r"estimated $\tilde{q}$", xlim=(0, top), ylim=(0, top), aspect="equal")
    both.set_title(f"correlation {sample.correlation:.4f}")
    both.legend(loc="upper left")
    return figure


def _pairs(axes: Any, sample: Sample) -> None:
    angle = np.linspace(0, np.pi, 200)
    axes.plot(np.append(np.cos(angle), 1), np.append(np.sin(angle), 0), color=GREY, linewidth=1)
    axes.plot([0, 1, 1, 0, 0], [0, 0, 1, 1, 0], color=GREEN, linewidth=1)
    axes.plot(*sample.o.T, ".", color=GREY, label=r"$o$, uniform on $\mathcal{O}$")
    axes.plot(*sample.a.T, "+", color=GREEN, label=r"$a \sim p(a\,|\,o)$ on $\mathcal{A}$")
    axes.set(title="sampled pairs", xlabel="first coordinate", ylabel="second coordinate")
    axes.set(ylim=(-0.05, 1.6), aspect="equal")
    axes.legend(loc="upper left")


def _errors(result: PopularityResult) -> Figure:
    figure, (left, right) = panels(2)
    sizes = np.array(list(result.samples))
    for method in METHODS:
        means, widths = np.array([mean_error(result.samples[n], method) for n in sizes]).T
        left.errorbar(sizes, means, widths, fmt="o-", capsize=3, color=COLOUR[method], label=method)
        if method != "maximum likelihood":
            terms = [np.mean([s.term[method] for s in result.samples[n]]) for n in sizes]
            right.plot(sizes, terms, "o-", color=COLOUR[method], label=method)
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="pairs n")
        label_ticks(axes.xaxis, [float(n) for n in sizes])
    left.set_ylabel(r"$|\hat{L} - L|$ (mean, 95% interval of " + f"{result.settings.seeds} draws)")
    right.set_ylabel(r"error term $E(\tilde{q}, q)$ of Theorem 2")
    left.set_ylim(top=5 * left.get_ylim()[1])
    left.legend(loc="upper right")
    right.legend(loc="center left")
    return figure
