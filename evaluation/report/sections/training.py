"""Section "Training": loss, temperature and scores during training, and the last logged values."""

from statistics import median

from evaluation.report.blocks import Block, Cell, Details, Figure, Figures, Table
from evaluation.report.figures.plots import Line, line_plot
from evaluation.report.figures.svg import slug
from evaluation.runs.description import MISSING, digits, duration, last, number, training_seconds
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

MAX_ROWS = 12  # of a table that is not folded
MAX_FIGURES = 6  # of scores during training that are not folded

LabelledRuns = list[tuple[str, Run]]  # label of the run's group, run


def training(groups: list[RunGroup]) -> list[Block]:
    """Return the curves, then one table row per run; [] without logs."""
    runs = [(group.label, run) for group in groups for run in group.runs if run.log]
    if not runs:
        return []
    table = _last_values(runs)
    rows = Details(f"All {len(runs)} runs", [table]) if len(runs) > MAX_ROWS else table
    return [Figures(curves(runs)), *score_curves(runs), rows]


def curves(runs: LabelledRuns, prefix: str = "") -> list[Figure]:
    """Return the curves of loss and temperature; `prefix` makes the figures' names unique in the document."""
    figures: list[Figure] = []
    for name, key, title in [("loss", "loss", "Loss"), ("temperature", "tau", "Temperature τ = 1/scale")]:
        lines = [_line(label, run, key) for label, run in runs]
        if any(line.x for line in lines):
            y = key.replace("tau", "τ")
            figures.append(line_plot(prefix + name, f"{title}, one line per seed", lines, "step", y))
    return figures


def score_curves(runs: LabelledRuns, prefix: str = "") -> list[Block]:
    """Return one figure per score logged during training; [] with log.evaluate_every=0."""
    names = dict.fromkeys(name for _, run in runs for line in run.log for name in line.get("evaluation") or {})
    figures: list[Figure] = []
    for score in names:
        if lines := [line for label, run in runs if (line := _line(label, run, score, "evaluation")).x]:
            caption = f"{score} during training, one line per seed"
            name = f"{prefix}evaluation-{len(figures) + 1:02d}-{slug(score)}"
            figures.append(line_plot(name, caption, lines, "step", score.rpartition(" ")[2], log_y=False))
    if len(figures) > MAX_FIGURES:
        return [Details(f"All {len(figures)} scores during training", [Figures(figures)])]
    return [Figures(figures)] if figures else []


def _line(label: str, run: Run, key: str, within: str = "") -> Line:
    """Return the logged values of `key`, or of `key` in the log's dictionary `within`, by step."""
    entries = [(entry, (entry.get(within) or {}) if within else entry) for entry in run.log]
    return Line.of_finite(label, [(number(entry, "step"), number(values, key)) for entry, values in entries])


def _last_values(runs: LabelledRuns) -> Table:
    rows = []
    for label, run in runs:
        speeds = [speed for entry in run.log if (speed := number(entry, "images_per_s")) is not None]
        seconds = training_seconds(run)
        rows.append([
            Cell(label),
            Cell(str(run.seed), run.seed),
            *(_cell(last(run, key)) for key in ("loss", "tau", "grad_norm")),
            _cell(median(speeds) if speeds else None),
            Cell(duration(seconds), seconds),
        ])  # fmt: skip
    return Table(["Method", "Seed", "Last loss", "Last τ", "Gradient norm", "Images/s (median)", "Time"], rows)


def _cell(value: float | None) -> Cell:
    return Cell(MISSING) if value is None else Cell(digits(value), value)
