"""One row an objective, one panel a number, one mark a temperature."""

from typing import TYPE_CHECKING

from clipx.theory.figure_style import GREY, ordered, panels, styled
from clipx.theory.free_embeddings import FreeResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {
    "gap": "modality gap\n(distance)",
    "uniformity": "uniformity\n(-W2, 0 is best)",
    "margin": "mean margin\n(similarity)",
    "retrieval": "retrieval of\nthe concept (share)",
    "rare half": "retrieval, rarer\nhalf (share)",
    "best tau": "loss above -I\n(nats, best tau)",
}


def draw(result: FreeResult) -> "dict[str, Figure]":
    with styled():
        names = list(dict.fromkeys(row.objective for row in result.rows))
        temperatures = list(dict.fromkeys(row.temperature for row in result.rows))
        figure, grid = panels(len(PANELS), width=1.75, height=1.3 + 0.27 * len(names))
        for axes, key in zip(grid, PANELS, strict=True):
            for label, colour, marker in zip(temperatures, ordered(len(temperatures)), "os^Dv*Px", strict=False):
                rows = [row for row in result.rows if row.temperature == label]
                at = [names.index(row.objective) for row in rows]
                axes.plot([r.numbers[key] for r in rows], at, marker, color=colour, label=f"tau {label}", alpha=0.85)
            axes.set(xlabel=PANELS[key], ylim=(len(names) - 0.5, -0.5))
            axes.set_yticks(range(len(names)), names if axes is grid[0] else [""] * len(names))
            axes.margins(x=0.12)
        chance = 1 / result.settings.K
        for axes, key in zip(grid, PANELS, strict=True):
            if key in ("retrieval", "rare half"):
                axes.axvline(chance, color=GREY, linestyle=":", linewidth=1)
                axes.annotate("chance", (chance, 0), rotation=90, va="top", color=GREY, fontsize=8)
            elif key == "best tau":
                axes.axvline(0, color=GREY, linestyle="--", linewidth=1)
                axes.annotate("bound", (0, 0), rotation=90, va="top", color=GREY, fontsize=8)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(temperatures))
        return {"objectives": figure}
