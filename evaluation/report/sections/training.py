"""Section "Training": loss, temperature, scores and geometry during training, last values."""

from dataclasses import replace
from statistics import fmean, median
from typing import Any

from clipx.utils.terminal import duration
from evaluation.published import public_log
from evaluation.report.blocks import Block, Cell, Data, Details, Figure, Figures, Table, figures
from evaluation.report.figures import COLUMN, Line, Point, drawing, line_plot, slug
from evaluation.runs.description import MISSING, digits, last, number, training_seconds
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import Run

MAX_ROWS = 12  # of a table that is not folded
MAX_FIGURES = 6  # of scores during training that are not folded
PATHS = ("gap", "uniformity", "alignment")  # geometry measures drawn against the scores

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
    """Return figures of loss, temperature, scores, geometry; `prefix` makes their names unique in the document."""
    drawn: list[Figure] = []
    for name, key, title in [("loss", "loss", "Loss"), ("temperature", "tau", "Temperature τ = 1/scale")]:
        lines = [_line(label, run, key) for label, run in runs]
        if any(line.x for line in lines):
            y = key.replace("tau", "τ")
            drawn.append(line_plot(prefix + name, f"{title}{_per_seed(runs)}", lines, "step", y))
    return [*figures(drawn), *score_curves(runs, prefix), *figures(geometry_paths(runs, prefix))]


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


def geometry_paths(runs: LabelledRuns, prefix: str = "") -> list[Figure]:
    """Draw each geometry measure against the mean of the logged scores: one path per label, an arrow at its last step.

    A point is the mean over the seeds at one step; only steps that all seeds have logged are drawn. Returns [] if
    log.evaluate_every or log.geometry_every was 0.
    """
    first = [next((line["evaluation"] for line in run.log if line.get("evaluation")), None) for _, run in runs]
    logged = [set(names) for names in first if names]
    scores = sorted(set.intersection(*logged)) if logged else []
    if not scores:
        return []
    drawn = []
    for measure in PATHS:
        points = {}
        for label in dict.fromkeys(label for label, _ in runs):
            seeds = [_path(run, measure, scores) for name, run in runs if name == label]
            steps = sorted(set.intersection(*(set(path) for path in seeds)))
            path = [(fmean(seed[step][0] for seed in seeds), fmean(seed[step][1] for seed in seeds)) for step in steps]
            points[label] = path if len(path) > 1 else []
        if any(points.values()):
            y = scores[0] if len(scores) == 1 else f"mean of {len(scores)} scores"
            caption = f"{measure} against {y}, one arrow per method over training, mean of its seeds"
            drawn.append(paths(f"{prefix}path-{measure}", caption, points, measure, y))
    return drawn


def paths(name: str, caption: str, points: dict[str, list[Point]], x: str, y: str) -> Figure:
    """Draw one path per label: a dot at its beginning, an arrow at its end. A label without points keeps its colour."""
    from matplotlib.patches import FancyArrowPatch

    with drawing(name, COLUMN, 250, points) as (plot, axes):
        for label, path in points.items():
            if not path:
                continue
            curve, line = plot.curve(label), plot.style(label)["linestyle"]
            axes.plot(*zip(*path, strict=True), linestyle=line, **curve)
            axes.plot(*path[0], "o", markersize=4, **curve)
            head: Any = {"arrowstyle": "-|>", "mutation_scale": 10, "shrinkA": 0, "shrinkB": 0}
            axes.add_patch(FancyArrowPatch(path[-2], path[-1], **head, **curve))
        axes.margins(0.08)
        rows: list[list[str | float]] = [[label, *point] for label, path in points.items() for point in path]
        return plot.to_figure(caption, Data(["curve", x, y], rows), x, y)


def _path(run: Run, measure: str, scores: list[str]) -> dict[float, tuple[float, float]]:
    """Return step -> measure, mean score; for the steps at which both were logged."""
    geometry = _by_step(run, measure, "geometry")
    by_score = [_by_step(run, score, "evaluation") for score in scores]
    steps = set(geometry).intersection(*by_score)
    return {step: (geometry[step], fmean(of_score[step] for of_score in by_score)) for step in steps}


def _by_step(run: Run, key: str, within: str) -> dict[float, float]:
    line = _line("", run, key, within)
    return dict(zip(line.x, line.y, strict=True))


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
