"""Section "Training": loss, temperature, scores and geometry during training, last values."""

from dataclasses import replace
from statistics import median

from clipx.utils.terminal import duration
from evaluation.published import public_log
from evaluation.report.blocks import Block, Cell, Details, Figure, Figures, Table, figures
from evaluation.report.figures import Line, line_plot, slug
from evaluation.runs.description import MISSING, digits, last, number, training_seconds
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

MAX_ROWS = 12  # of a table that is not folded
MAX_FIGURES = 6  # of scores during training that are not folded
# name of a figure -> key of its values in the log, the dictionary of the log that has them, title
CURVES = {
    "loss": ("loss", "", "Loss"),
    "temperature": ("tau", "", "Temperature τ = 1/scale"),
    "gap": ("gap", "geometry", "Modality gap"),
    "uniformity": ("uniformity", "geometry", "Uniformity"),
    "alignment": ("alignment", "geometry", "Alignment"),
}

LabelledRuns = list[tuple[str, Run]]  # label of the run's group, run


def training(groups: list[RunGroup]) -> list[Block]:
    """Return the curves of each recipe, then one table row per run; [] without logs."""
    runs = [(group.label, run) for group in groups for run in group.runs if run.log]
    if not runs:
        return []
    by_recipe: dict[str, LabelledRuns] = {}
    for label, run in runs:
        by_recipe.setdefault(run.config.recipe, []).append((label, run))
    blocks: list[Block] = [
        Details(recipe or "Without a recipe", curves(of_recipe, f"{slug(recipe)}-"), open=True)
        for recipe, of_recipe in by_recipe.items()
    ]
    if len(by_recipe) == 1:
        blocks = curves(runs)
    table = _last_values(runs)
    last_block = Details(f"All {len(runs)} runs", [table]) if len(runs) > MAX_ROWS else table
    return [*blocks, last_block]


def curves(runs: LabelledRuns, prefix: str = "") -> list[Block]:
    """Return figures of loss, temperature, geometry, scores; `prefix` makes their names unique in the document."""
    drawn: list[Figure] = []
    for name, (key, within, title) in CURVES.items():
        lines = [_line(label, run, key, within) for label, run in runs]
        if any(line.x for line in lines):
            y = key.replace("tau", "τ")
            drawn.append(line_plot(prefix + name, f"{title}{_per_seed(runs)}", lines, "step", y))
    return [*figures(drawn), *score_curves(runs, prefix)]


def score_curves(runs: LabelledRuns, prefix: str = "") -> list[Block]:
    """Return one figure per score logged during training; [] with log.evaluate_every=0."""
    names = dict.fromkeys(name for _, run in runs for line in run.log for name in line.get("evaluation") or {})
    panels = {score: [_line(label, run, score, "evaluation", 100) for label, run in runs] for score in names}
    drawn: list[Figure] = []
    for score, lines in panels.items():
        if any(line.x for line in lines):
            public = {label: points for _, run in runs for label, points in public_log(run, score).items()}
            lines += [Line.of_finite(*curve) for curve in public.items()]
            caption = f"{score} during training{_per_seed(runs)}"
            name, y = f"{prefix}evaluation-{len(drawn) + 1:02d}-{slug(score)}", f"{score.rpartition(' ')[2]} (%)"
            drawn.append(line_plot(name, caption, lines, "step", y, log_y=False))
    if len(drawn) > MAX_FIGURES:
        return [Details(f"All {len(drawn)} scores during training", [Figures(drawn)])]
    return figures(drawn)


def _per_seed(runs: LabelledRuns) -> str:
    return ", one line per seed" if len(runs) > 1 else ""


def _line(label: str, run: Run, key: str, within: str = "", factor: float = 1) -> Line:
    """Return the logged values of `key`, or of `key` in the log's dictionary `within`, times `factor`, by step."""
    entries = [(entry, (entry.get(within) or {}) if within else entry) for entry in run.log]
    found = Line.of_finite(label, [(number(entry, "step"), number(values, key)) for entry, values in entries], run.seed)
    return replace(found, y=[factor * value for value in found.y])


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
