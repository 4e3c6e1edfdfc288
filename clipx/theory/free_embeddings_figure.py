"""Figure of the free embeddings: one row per objective, one panel per metric, one marker per temperature."""

from clipx.theory.figure_style import GREY, Figures, ordered_colours, panels
from clipx.theory.free_embeddings import FreeEmbeddingResult

PANELS = {
    "gap": "modality gap\n(distance)",
    "uniformity": "uniformity\n(-W2, 0 is best)",
    "margin": "mean margin\n(similarity)",
    "retrieval": "concept retrieval\n(accuracy)",
    "rare half": "concept retrieval,\nrarer half (accuracy)",
    "best tau": "loss above -I\n(nats, best tau)",
}


def draw(result: FreeEmbeddingResult) -> Figures:
    """Draw the metrics of every objective."""
    names = list(dict.fromkeys(trial.objective for trial in result.trials))
    temperatures = list(dict.fromkeys(trial.temperature for trial in result.trials))
    chance = 1 / result.settings.K
    lines = {"retrieval": (chance, "chance", ":"), "rare half": (chance, "chance", ":"), "best tau": (0, "bound", "--")}
    figure, grid = panels(len(PANELS), width=1.75, height=1.3 + 0.27 * len(names))
    for axes, (key, title) in zip(grid, PANELS.items(), strict=True):
        for label, colour, marker in zip(temperatures, ordered_colours(len(temperatures)), "os^Dv*Px", strict=False):
            trials = [trial for trial in result.trials if trial.temperature == label]
            rows = [names.index(trial.objective) for trial in trials]
            values = [trial.metrics[key] for trial in trials]
            axes.plot(values, rows, marker, color=colour, label=f"tau {label}", alpha=0.85)
        axes.set(xlabel=title, ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names if axes is grid[0] else [""] * len(names))
        axes.margins(x=0.12)
        if key in lines:
            x, name, style = lines[key]
            axes.axvline(x, color=GREY, linestyle=style, linewidth=1)
            axes.annotate(name, (x, 0), rotation=90, va="top", color=GREY, fontsize=8)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(temperatures))
    return {"objectives": figure}
