"""Sections "Tables of the papers", "Figures of the papers" and "Toy problems", with our numbers."""

import math
from pathlib import Path
from statistics import fmean

from clipx.utils.figures import COLOURS
from clipx.utils.trust import load_json
from evaluation.claims.evidence import Evidence, Seeds
from evaluation.claims.measures import GAP, PROBE, RECALL_1, UNIFORMITY, ZEROSHOT, EarlyChange, logged_gaps
from evaluation.claims.papers.paper1 import MARGIN_RECIPES
from evaluation.claims.papers.paper4 import DYNAMICS, INITIAL
from evaluation.claims.published import TABLES, Column, PaperTable, printed
from evaluation.claims.types import Measure, Outcome
from evaluation.report.blocks import Block, Cell, Details, Figure, Figures, SvgFile, Table, Text, figures
from evaluation.report.figures import COLUMN, DASHED, INK, Line, Point, drawing, line_plot, scatter_plot, slug
from evaluation.report.sections.tasks import Artifact, artifacts_by_dataset
from evaluation.runs.groups import RunGroup
from evaluation.runs.reader import STATED
from evaluation.statistics import are_equal, t_interval

MAX_PCA_PLOTS = 4
MIN_SCATTER_POINTS = 4
EMPTY = "–"
MARGIN_ARMS = {  # paper 1: figure -> arms
    "Fig. 3": ("untrained", "tau_07", "tau_01"),
    "Fig. 6": ("tau_01", "tau_01_reg"),
}
SCATTER_Y: dict[str, tuple[Measure, str]] = {  # score, figure of paper 4
    "R@1 both ways": (RECALL_1, "Fig. 6"),
    "zero-shot": (ZEROSHOT, "Fig. 7"),
    "linear probe": (PROBE, "Fig. 7"),
}
SCATTER_X: dict[str, Measure] = {"gap": GAP, "uniformity": UNIFORMITY}
COMMANDS = {  # prefix of a figure's name -> the paper's figure, and the command that makes its data
    "margins": "margin densities (paper 1, Figs. 3 and 6); run clipx reproduce recipe=margin_mini",
    "missing-objects": "missing objects (paper 1, Fig. 4); run clipx report missing-objects ANNOTATIONS",
    "pca": "PCA of image-text pairs (paper 4, Fig. 1); run clipx eval RUN tasks=[geometry]",
    "slow-closure": "slow closure (paper 4, Fig. 4); run clipx reproduce recipe=gap_dynamics_mini",
    "early-gap": "early growth (paper 4, Fig. 4); run clipx reproduce recipe=gap_init_mini",
    "scatter": "scores against gap and uniformity (paper 4, Figs. 6 and 7); run clipx reproduce recipe=gap_mini",
}


def paper_tables(evidence: Evidence) -> list[Block]:
    """Return the folded tables of the recipes that were run, and one sentence on the others."""
    blocks: list[Block] = []
    for table in TABLES:
        if (arms := evidence.runs.get(table.recipe)) is not None:
            columns = ["Arm", *(column.label for column in table.columns), "To fill empty cells"]
            rows = [_row(table, arm, published.split(), arms.get(arm, {})) for arm, published in table.rows.items()]
            title = f"Paper {table.paper}: {table.title}, {table.recipe}"
            blocks.append(Details(title, [Text(f"Published: {table.source}."), Table(columns, rows)]))
    if not_run := sorted({table.recipe for table in TABLES} - set(evidence.runs)):
        commands = ", ".join(f"clipx reproduce recipe={recipe}" for recipe in not_run)
        blocks.append(Text(f"Tables without runs. To fill them with runs at the papers' scale: {commands}", "muted"))
    return blocks


def _row(table: PaperTable, arm: str, published: list[str], seeds: Seeds) -> list[Cell]:
    ours = [_values(column, table.columns, seeds) for column in table.columns]
    cells = [_cell(values, text) for values, text in zip(ours, published, strict=True)]
    command = ""
    if not seeds:
        command = f"clipx train recipe={table.recipe} arm={arm} seed=0"
    elif not all(ours):
        command = f"clipx reproduce recipe={table.recipe} arms={arm}"  # also runs the evaluations of the paper's table
    return [Cell(arm), *cells, Cell(command, tone="muted")]


def _values(column: Column, columns: tuple[Column, ...], seeds: Seeds) -> list[float]:
    """Return one value per evaluated seed, in the paper's unit."""
    if column.reader is None:  # the mean of the other columns
        others = [_values(other, columns, seeds) for other in columns if other.reader is not None]
        complete = all(len(values) == len(seeds) for values in others)
        return [fmean(values) for values in zip(*others, strict=True)] if complete else []
    scores = [column.reader.read(run) for run in seeds.values()]
    return [column.scale * column.reader.mean(by_dataset) for by_dataset in scores if by_dataset]


def _cell(values: list[float], published: str) -> Cell:
    """Return our mean; below it the paper's number, the difference and, from three seeds on, its 95% interval."""
    theirs = printed(published)
    note = f"paper {published}" if theirs is not None else "not in the paper"
    if not values:
        return Cell(EMPTY, note=note, tone="muted")
    digits = len(published.partition("±")[0].partition(".")[2]) if theirs is not None else 2
    ours = fmean(values)
    if theirs is not None:
        note += f", {ours - theirs:+.{digits}f}"
        if len(values) > 2 and not are_equal(values):
            _, low, high = t_interval([value - theirs for value in values])
            note += f" [{low:.{digits}f}, {high:.{digits}f}]"
    return Cell(f"{ours:.{digits}f}", ours, note=note)


def paper_figures(groups: list[RunGroup], evidence: Evidence, list_missing: bool) -> list[Block]:
    """Return the figures that the runs have data for; with `list_missing`, also the commands for the others."""
    drawn = [
        *_margins(groups),
        *_scores_against_geometry(evidence),
        *_slow_closure(evidence),
        *_early_gap(evidence),
        *_pca(groups),
        *_missing_objects(evidence),
    ]
    not_drawn = [
        Text(f"Not drawn: {figure_and_command}", "muted")
        for prefix, figure_and_command in COMMANDS.items()
        if list_missing and not any(figure.name.startswith(prefix) for figure in drawn)
    ]
    return [*figures(drawn), *not_drawn]


def _margins(groups: list[RunGroup]) -> list[Figure]:
    """Paper 1, Figs. 3 and 6: one figure per data set and entry of MARGIN_ARMS.

    A data set without such a figure has one with all its groups, if there are enough colours.
    """
    drawn: list[Figure] = []
    for dataset, members in artifacts_by_dataset(groups, "geometry").items():
        margins = {group.label: [seed["margins"] for seed in seeds] for group, seeds in members}
        # of several groups of an arm the first counts, which has no overrides
        of_paper = [group for group, _ in members if group.runs[0].config.recipe in MARGIN_RECIPES]
        labels = {group.runs[0].config.arm: group.label for group in reversed(of_paper)}
        by_figure = {
            f" (paper 1, {figure})": {arm: margins[labels[arm]] for arm in arms if arm in labels}
            for figure, arms in MARGIN_ARMS.items()
        }
        chosen = {source: by_arm for source, by_arm in by_figure.items() if len(by_arm) > 1}
        if not chosen and len(margins) <= len(COLOURS):
            chosen = {"": margins}
        for source, by_label in chosen.items():
            name = f"margins-{len(drawn) + 1:02d}-{slug(dataset)}"
            drawn.append(density_plot(name, f"{dataset}: density of the margins in batches of 64{source}", by_label))
    return drawn


def density_plot(name: str, caption: str, histograms: dict[str, list[Artifact]]) -> Figure:
    """Draw one stepped curve per label: the histogram of all its seeds, scaled to area 1, and a dashed line at 0."""
    rows: list[list[str | float]] = []
    with drawing(name, COLUMN, 230, histograms) as (plot, axes):
        for label, seeds in histograms.items():
            first, last = float(seeds[0]["first"]), float(seeds[0]["last"])
            counts = [sum(of_bin) for of_bin in zip(*(seed["counts"] for seed in seeds), strict=True)]
            width = (last - first) / len(counts)
            filled = [at for at, count in enumerate(counts) if count > 0] or [0]
            shown = range(filled[0], filled[-1] + 1)
            values = [counts[at] / max(1, sum(counts)) / width for at in shown]
            edges = [first + width * at for at in (*shown, shown.stop)]
            curve = plot.curve(label)
            axes.stairs(values, edges, fill=True, alpha=0.18, **curve)
            axes.stairs(values, edges, linewidth=1.4, **curve)
            rows += [[label, *one] for one in zip(edges, edges[1:], values, strict=False)]
        axes.axvline(0, **DASHED)
        return plot.to_figure(caption, ["curve", "from", "to", "density"], rows, "margin", "density")


def _scores_against_geometry(evidence: Evidence) -> list[Figure]:
    """Paper 4, Figs. 6 and 7: one point per arm, the mean of its seeds."""
    drawn = []
    for recipe, arms in evidence.runs.items():
        for x_name, x in SCATTER_X.items():
            for y_name, (y, source) in SCATTER_Y.items():
                points = {
                    arm: (_mean_over_seeds(x, seeds), 100 * _mean_over_seeds(y, seeds)) for arm, seeds in arms.items()
                }
                known = {arm: point for arm, point in points.items() if all(map(math.isfinite, point))}
                if len(known) >= MIN_SCATTER_POINTS:
                    name = f"scatter-{slug(recipe)}-{slug(x_name)}-{slug(y_name)}"
                    caption = f"{recipe}: {y_name} against {x_name}, one point per arm (paper 4, {source})"
                    drawn.append(scatter_plot(name, caption, known, x_name, f"{y_name} (%)"))
    return drawn


def _mean_over_seeds(measure: Measure, seeds: Seeds) -> float:
    values = [measure.mean(by_dataset) for run in seeds.values() if (by_dataset := measure.read(run))]
    return fmean(values) if values else math.nan


def _slow_closure(evidence: Evidence) -> list[Figure]:
    """Paper 4, Fig. 4: the gap against -1/log^2 t after step 100."""
    drawn = []
    for recipe in DYNAMICS:
        lines = []
        for arm, seeds in evidence.runs.get(recipe, {}).items():
            for run in seeds.values():
                points = [(-1 / math.log(step) ** 2, gap) for step, gap in logged_gaps(run) if step > 100]
                lines.append(Line.of_finite(arm or run.name, points, run.seed))
        if any(line.x for line in lines):
            caption = f"{recipe}: gap during training, one line per seed; slow closure is a straight line"
            caption += " (paper 4, Fig. 4)"
            drawn.append(line_plot(f"slow-closure-{slug(recipe)}", caption, lines, "−1 / log² t", "gap"))
    return drawn


def _early_gap(evidence: Evidence) -> list[Figure]:
    """Paper 4, Fig. 4: histogram of the gap's change in the first ten steps, over random initialisations."""
    drawn = []
    for recipe in INITIAL:
        runs = [run for seeds in evidence.runs.get(recipe, {}).values() for run in seeds.values()]
        changes = [change for run in runs for change in EarlyChange().read(run).values()]
        if len(changes) > 1:
            x = "gap after 10 steps − at initialisation"
            count = f"{len(changes)} initialisations"
            caption = f"{recipe}: change of the gap in the first 10 steps, {count} (paper 4, Fig. 4)"
            with drawing(f"early-gap-{slug(recipe)}", COLUMN, 230) as (plot, axes):
                axes.hist(changes, bins=20, color=COLOURS[0], alpha=0.75)
                axes.axvline(0, **DASHED)
                axes.yaxis.get_major_locator().set_params(integer=True)
                drawn.append(plot.to_figure(caption, [x], [[change] for change in changes], x, "runs"))
    return drawn


def _pca(groups: list[RunGroup]) -> list[Figure]:
    """Paper 4, Fig. 1: the first seed of each group."""
    by_dataset = artifacts_by_dataset(groups, "geometry")
    plotted = [(dataset, group, seeds[0]) for dataset, members in by_dataset.items() for group, seeds in members]
    return [
        _pca_plot(
            f"pca-{number:02d}-{slug(dataset)}-{slug(group.label)}",
            f"{dataset} · {group.label}: image-text pairs, first two principal components (paper 4, Fig. 1)",
            artifact["pca"]["image"],
            artifact["pca"]["text"],
        )
        for number, (dataset, group, artifact) in enumerate(plotted[:MAX_PCA_PLOTS], 1)
    ]


def _pca_plot(name: str, caption: str, images: list[Point], texts: list[Point]) -> Figure:
    """Draw the projections of images and texts, and a line from each image to its text."""
    with drawing(name, COLUMN, 260, ["images", "texts"]) as (plot, axes):
        for (x, y), (u, v) in zip(images, texts, strict=True):
            axes.plot([x, u], [y, v], color=INK, linewidth=0.5, alpha=0.25)
        for label, points in (("images", images), ("texts", texts)):
            axes.plot(*zip(*points, strict=True), "o", markersize=3.5, **plot.curve(label))
        columns = [f"{order} component of the {side}" for side in ("image", "text") for order in ("first", "second")]
        rows = [[*image, *text] for image, text in zip(images, texts, strict=True)]
        return plot.to_figure(caption, columns, rows, "first component", "second component")


def _missing_objects(evidence: Evidence) -> list[Figure]:
    """Paper 1, Fig. 4: one column per number of missing categories, from 0."""
    counts, x, y = evidence.missing_objects, "missing categories", "share of pairs"
    if counts is None:
        return []
    shares = [count / sum(counts) for count in counts]
    caption = (
        "Annotated object categories that the caption does not name, share of image-caption pairs (paper 1, Fig. 4)"
    )
    with drawing("missing-objects", COLUMN, 230) as (plot, axes):
        axes.bar(range(len(shares)), shares, color=COLOURS[0], alpha=0.75)
        return [plot.to_figure(caption, [x, y], [*enumerate(shares)], x, y)]


def toy_problems(evidence: Evidence, outcomes: list[Outcome]) -> list[Block]:
    """Return one folded block per problem of `clipx theory`, with its verdicts and drawings."""
    by_folder: dict[Path, list[Path]] = {}
    for file in evidence.drawn:
        by_folder.setdefault(file.parent, []).append(file)
    blocks: list[Block] = [
        _toy_problem(number, folder, files, outcomes) for number, (folder, files) in enumerate(by_folder.items(), 1)
    ]
    note = "Computed by clipx theory, without data and towers."
    return [Text(note, "muted"), *blocks] if blocks else []


def _toy_problem(number: int, folder: Path, files: list[Path], outcomes: list[Outcome]) -> Details:
    name, stated = folder.name, {row["claim"] for row in load_json((folder / STATED).read_text())}
    decided = [outcome for outcome in outcomes if outcome.claim.id in stated]
    verdicts = [f"{outcome.claim.id} {outcome.verdict}" for outcome in decided]
    statements = [Text(f"{o.claim.id} {o.verdict}: {o.claim.statement}") for o in decided]
    prefix = f"theory-{number:02d}-{slug(name)}"
    drawings = [SvgFile(f"{prefix}-{slug(file.stem)}", file.read_bytes(), file.stem) for file in files]
    return Details(f"{name}: {', '.join(verdicts)}" if verdicts else name, [*statements, Figures(drawings)])
