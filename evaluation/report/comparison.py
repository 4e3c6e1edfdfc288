"""The page, the tables and the CSV of `clipx report compare`: ranking, paired differences, curves, ladders."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from clipx.config.schema import AXES
from clipx.utils.figures import COLOURS
from clipx.utils.files import write_text
from evaluation.claims.measures import CANONICAL_HELD_OUT, canonical_name, value_title
from evaluation.compare.ladders import Ladder
from evaluation.compare.methods import (
    GEOMETRY,
    MEAN,
    SCORES,
    Format,
    LeftOut,
    Method,
    MethodComparison,
    SeedMean,
    paired,
    seed_mean,
)
from evaluation.report.blocks import Block, Cell, Details, Document, Figures, KeyValues, Section, Table, Text, Tone
from evaluation.report.figures import Line, line_plot, slug
from evaluation.report.render import render_latex
from evaluation.report.sections.settings import provenance
from evaluation.report.sections.training import curves
from evaluation.report.writer import ReportFiles, save
from evaluation.runs.description import MISSING, settings_of_method
from evaluation.runs.groups import MIN_SEEDS, RunGroup
from evaluation.types import first_names

NAMES = {  # score or geometry measure -> its name on the page, if that is another
    MEAN: "mean of tasks",
    "zeroshot": "zero-shot",
    "linear_probe": "linear probe",
    "retrieval": "R@1 both ways",
    "pairs": "minimal pairs",
    "margin": "mean margin",
}
FEW_ITEMS = 200  # test items, each worth more than half a point
MAX_NAMES = 4  # tied methods named in the document's lead
MAX_IN_HEADER = 24  # longest name in a column's header, in characters
RULE = (
    "Differences are paired by seed: runs with the same seed saw the same samples in the same order. The 95% intervals "
    "are Student's t over at least three seeds; if two methods are equal, one interval in twenty excludes 0. Ranks "
    "are corrected for all pairs of methods (paired t-tests, Holm's method): if all methods are equal, at most one "
    "table in twenty excludes any rank. The intervals hold for these test images only. For a single task there are "
    "also intervals over seeds and test items, from a bootstrap that also draws the images. A method ranked 1–3 may be "
    "the best. Methods are sorted by their mean, those with other seeds by their paired differences; methods with one "
    "seed come last."
)
FOR_ONE_PAIR = "Intervals are for one pair of methods; ranks are corrected for all pairs"  # for tables without RULE
FOOTER = (
    "Scores are in per cent, averaged over the data sets that all compared runs share, and their differences in "
    "percentage points; gap, uniformity, alignment and margin are numbers. ▲ or ▼: the whole 95% interval of "
    "the paired difference lies above or below 0. Click a column header to sort."
)
RANKING_COLUMNS = ("first_rank", "last_rank", "reference", "difference", "difference_low", "difference_high")


def write_comparison(
    comparisons: list[MethodComparison],
    ladders: list[Ladder],
    left_out: LeftOut,
    out: Path,
    command: str = "",
    about: Sequence[str] = (),
) -> ReportFiles:
    """Write compare.html, .md, .csv and .tex to the folder `out`.

    `about`: names of a task or data sets that make it compare_NAME.html and so on.
    """
    stem = "_".join(["compare", *map(slug, about)])
    tables = [(ladder_title(ladder), ladder_table(ladder)) for ladder in ladders]
    named = zip(names(comparisons), comparisons, strict=True)
    tables += [(f"{name}. {FOR_ONE_PAIR}.", ranking(one)) for name, one in named if one.ranked]
    write_text(out / f"{stem}.tex", "\n".join(render_latex(caption, table) for caption, table in tables))
    document = build_comparison(comparisons, ladders, left_out)
    return save(document, comparison_table(comparisons), out, stem, command)


def build_comparison(comparisons: list[MethodComparison], ladders: list[Ladder], left_out: LeftOut) -> Document:
    """Return the document, one section per ladder and comparison."""
    named = list(zip(comparisons, names(comparisons), strict=True))
    sections = [_ladder_section(ladder, number) for number, ladder in enumerate(ladders, 1)]
    sections += [_section(comparison, name, number) for number, (comparison, name) in enumerate(named, 1)]
    lists = [Details(f"{reason}: {len(of)}", [Text(", ".join(of))]) for reason, of in left_out.items()]
    sections.append(Section("Left out", [*lists]))
    methods = [method for one in comparisons for method in (*one.ranked, *one.unranked)]
    groups = [RunGroup(method.name, method.runs) for method in methods]
    sections.append(Section("Provenance", provenance(groups)))
    leads = " ".join(" ".join([lead(one, name), *notes(one)]) for one, name in named)
    return Document(f"Comparison of {len(methods)} methods", leads, [s for s in sections if s.blocks], FOOTER)


def names(comparisons: list[MethodComparison]) -> list[str]:
    """Return a name of each comparison: its conditions in short, and the settings that tell it from the others.

    `open_clip:tiny on scenes, 25,600 samples, train.batch_size=64`.
    """
    short = [_conditions(comparison) for comparison in comparisons]
    found = []
    for name, comparison in zip(short, comparisons, strict=True):
        alike = [other.conditions for other, of_other in zip(comparisons, short, strict=True) if of_other == name]
        keys = [key for key in comparison.conditions if len({str(of.get(key)) for of in alike}) > 1]
        found.append(", ".join([name, *(f"{key}={comparison.conditions[key]}" for key in keys)]))
    return found


def _name(measure: str) -> str:
    return NAMES.get(measure, measure)


def with_unit(comparison: MethodComparison, measure: str = "") -> str:
    """Return the name of a measure, by default of the ranking score, with its unit: `R@1 both ways (%)`."""
    return _name(measure or comparison.by) + (" (%)" if comparison.is_share(measure) else "")


def notes(comparison: MethodComparison) -> list[str]:
    """Return sentences about the ranking: its data sets, the level of chance, its seeds, and runs that diverged."""
    if not comparison.ranked:
        return []
    found = [_named_sets(comparison), chance(comparison), _few_items(comparison), *_fewer_seeds(comparison)]
    for method in comparison.ranked:
        if method.without_effect:
            found.append(f"{method.label} is not what its name and settings say: {', '.join(method.without_effect)}.")
    methods = (*comparison.ranked, *comparison.unranked)  # a mean over the good seeds alone may look good
    diverged = [f"{method.label} {method.diverged} of {len(method.runs)}" for method in methods if method.diverged]
    found += [f"Seeds that diverged, which are in no mean: {', '.join(diverged)}."] if diverged else []
    return [note for note in found if note]


def not_ranked(comparison: MethodComparison) -> list[str]:
    """Return lines that name the methods without a rank, one for each reason."""
    reasons: dict[str, list[str]] = {}
    for method in comparison.unranked:
        reason = f"diverged seeds: {method.diverged}" if method.diverged else "not evaluated on the shared data sets"
        reasons.setdefault(reason, []).append(method.label)
    return [f"Not ranked, {reason}: {', '.join(labels)}" for reason, labels in reasons.items()]


def lead(comparison: MethodComparison, title: str) -> str:
    """Return a sentence with the first method and those that it is not ahead of; `title`: see `names`."""
    if not comparison.ranked:
        return _nothing_ranked(comparison, title)
    best, *others = comparison.ranked
    tied = [method.label for method in comparison.not_beaten(best)]
    first = f"{title}: {best.label} is first of {len(comparison.ranked)} by {_name(comparison.by)}"
    if not others:
        lacking = first_names([method.label for method in comparison.unranked], MAX_NAMES)
        without = f"without a score on its data: {lacking} (on=SET takes other data)" if lacking else ""
        return f"{first}; {without or 'no other method is evaluated'}."
    differences = [comparison.difference(best, other) for other in others]
    if not any(found and found.seeds >= MIN_SEEDS for found in differences):
        single = [method.label for method in others if len(method.values[comparison.by]) == 1]
        if single and len(best.values[comparison.by]) > 1:
            first += f"; {first_names(single, MAX_NAMES)} with one seed came last, whatever the score"
        return f"{first}; no other method shares {MIN_SEEDS} seeds with it, so other seeds may change that."
    behind = f"not significantly ahead of {first_names(tied, MAX_NAMES)} (Holm's method over all pairs)"
    return f"{first}, {behind if tied else 'significantly ahead of all others over the seeds'}."


def _fewer_seeds(comparison: MethodComparison) -> list[str]:
    """Return the reference's means over the seeds of methods that lack some of its seeds."""
    reference, lacking = comparison.reference, dict[frozenset[int], list[str]]()
    all_seeds, text = comparison.shared_seeds(reference), comparison.text()
    for method in comparison.ranked:
        if (seeds := comparison.shared_seeds(method)) < all_seeds:
            lacking.setdefault(seeds, []).append(method.label)
    values = reference.values[comparison.by]
    return [
        f"{reference.label} has {text(fmean(values[seed] for seed in seeds), '')} on the {len(seeds)} of its "
        f"{len(all_seeds)} seeds that it shares with {first_names(labels, MAX_NAMES)}."
        for seeds, labels in lacking.items()
    ]


def _scored(comparison: MethodComparison) -> list[str]:
    """Return the data sets whose scores make up that of the ranking, each as `TASK DATASET`."""
    return sorted(title for title in comparison.scored if comparison.by in (MEAN, title.split()[0]))


def _named_sets(comparison: MethodComparison) -> str:
    """Return a sentence with the name of the score and its data sets, or their number if there are many."""
    scored = _scored(comparison)
    tasks = {title.split()[0] for title in scored}
    name = _name(tasks.pop() if len(tasks) == 1 else comparison.by)
    shown = ", ".join(scored) if len(scored) <= MAX_NAMES else f"{len(scored)} data sets"
    return f"The score, {name}, is over {shown}." if scored else ""


def _few_items(comparison: MethodComparison) -> str:
    """Return a sentence if the score comes from few test items; "" else, and if it is a mean over several sets."""
    scored = _scored(comparison)
    if len(scored) != 1 or not comparison.is_share():
        return ""
    rows = [row for method in comparison.ranked for row in comparison.scored_rows(method)]
    items = min(row.n for row in rows if value_title(row) in scored)
    if items >= FEW_ITEMS:
        return ""
    change = f"one of them changes a score by up to {100 / items:.1f} points"
    return f"There are {items} test items: {change}, and on other items the order may be another."


def chance(comparison: MethodComparison) -> str:
    """Return a sentence with the chance level and the methods not significantly above it; "" if it is unknown."""
    if comparison.chance is None or not comparison.ranked:
        return ""
    text = comparison.text()(comparison.chance, "")
    level = f"Chance is {text}{'%' if comparison.is_share() else ''}"
    below = [method.label for method in comparison.ranked if not comparison.above_chance(method)]
    if len(below) == len(comparison.ranked):
        return f"{level}: no method is significantly above it."
    return f"{level}; not significantly above it: {first_names(below, MAX_NAMES)}." if below else f"{level}."


def _nothing_ranked(comparison: MethodComparison, title: str) -> str:
    """Return a sentence that says why no method is ranked; without a common data set, it names those of two methods."""
    name = _name(comparison.by)
    sets = {method.label: method.sets for method in comparison.unranked if method.sets}
    if len(sets) > 1:
        shown = "; ".join(f"{label}: {first_names([*sets[label]])}" for label in [*sets][:2])
        return f"No data set gives every run a value of {name} ({shown}): evaluate all runs on the same sets."
    runs = [run for method in comparison.unranked for run in method.runs]
    held_out = CANONICAL_HELD_OUT in {canonical_name(row.dataset) for run in runs for row in run.results}
    instead = "on the held-out pairs with on=held_out" if held_out else "by another score with by=NAME"
    return f"{title}: no run has a value of {name}: run clipx eval RUN..., or rank {instead}."


def _conditions(comparison: MethodComparison) -> str:
    """Return the conditions in short: `open_clip:tiny on scenes, 25,600 samples`."""
    values = comparison.conditions
    lengths = {unit: values[f"train.{unit}"] for unit in ("epochs", "samples")}
    known = [f"{length} {unit}" for unit, length in lengths.items() if length != MISSING]
    return f"{_towers_and_data(values)}, {', '.join(known)}"


def _towers_and_data(conditions: dict[str, str]) -> str:
    towers = dict.fromkeys(conditions[f"model.{side}.name"] for side in ("image", "text"))
    return f"{' and '.join(towers)} on {conditions['data.name']}"


def _section(comparison: MethodComparison, title: str, number: int) -> Section:
    blocks: list[Block] = []
    if comparison.ranked:
        tasks = f" of {', '.join(_name(task) for task in comparison.tasks)}" if comparison.by == MEAN else ""
        blocks = [Text(f"Ranked by the {_name(comparison.by)}{tasks}. {RULE}", "muted"), ranking(comparison)]
        shown = comparison.ranked[: len(COLOURS)]  # one colour per method
        runs = [(method.label, run) for method in shown for run in method.runs if run.log]
        prefix = f"compare-{number}-"
        if drawn := curves(runs, prefix):
            blocks += [Text("Each loss is the method's own objective: compare shapes, not heights.", "muted"), *drawn]
        if len(comparison.ranked) > 2:
            blocks.append(Details("All pairs: row minus column", [_pairwise_differences(comparison)]))
        about = Text(f"Below each mean: difference to {comparison.reference.label}", "muted")
        blocks.append(Details("Means by data set", [about, _means_by_set(comparison)]))
        blocks.append(Details("Values by data set and seed", [_values(comparison)]))
    blocks += [Text(line, "muted") for line in not_ranked(comparison)]
    blocks.append(Details("Common settings of these runs", [KeyValues([*_common_settings(comparison).items()])]))
    return Section(title, blocks)


def ranking(comparison: MethodComparison) -> Table:
    """Return the table of methods, best first: score, difference to the reference, other scores, geometry."""
    reference, by = comparison.reference, comparison.by
    measured = {name for method in comparison.ranked for name in method.values}
    alike = comparison.tasks if by == MEAN and len(comparison.tasks) == 1 else []  # the mean of one task is this task
    measures = [name for name in (*SCORES, *GEOMETRY) if name in measured and name not in (by, *alike)]
    over_items, text = comparison.over_items, comparison.text()
    with_items = any(over_items.values())
    rows = [
        [
            rank(comparison, method, place),
            Cell(method.label, note=_description(method)),
            *_score(comparison.mean(method, method.values[by]), text),
            difference_cell(None if method is reference else comparison.difference(method, reference), text),
            *([_over_items(over_items.get(method.label), text)] if with_items else []),
            *(_score(comparison.mean(method, method.values.get(n, {})), comparison.text(n))[0] for n in measures),
            seeds(comparison, method),
        ]
        for place, method in enumerate(comparison.ranked, 1)
    ]
    short = "the reference" if comparison.reference_label == reference.label else "the first"
    difference = f"Difference to {reference.label if len(reference.label) <= MAX_IN_HEADER else short}"
    columns = ["Rank", "Method", with_unit(comparison, *alike), "95% interval", difference]
    columns += ["Over seeds and test items"] if with_items else []
    return Table([*columns, *(with_unit(comparison, name) for name in measures), "Seeds"], rows)


def seeds(comparison: MethodComparison, method: Method) -> Cell:
    """Return the cell with the number of seeds of the method's mean: `3`, or `3 of 5` if it has others too."""
    used, own = len(comparison.shared_seeds(method)), len(method.values[comparison.by])
    return Cell(str(own) if used == own else f"{used} of {own}", used)


def _common_settings(comparison: MethodComparison) -> dict[str, str]:
    """Return the conditions, and the settings that could differ between the methods, but do not."""
    first, *others = [settings_of_method(method.runs[0])[1] for method in (*comparison.ranked, *comparison.unranked)]
    return comparison.conditions | {key: v for key, v in first.items() if all(other.get(key) == v for other in others)}


def _over_items(found: tuple[float, float] | None, text: Format) -> Cell:
    return Cell(MISSING) if found is None else Cell(f"[{text(found[0], '+')}, {text(found[1], '+')}]", found[0])


def _values(comparison: MethodComparison) -> Table:
    names = list(dict.fromkeys(name for method in comparison.ranked for name in method.sets))
    rows, text = [], comparison.text()
    for method in comparison.ranked:
        for seed in sorted({seed for of_set in method.sets.values() for seed in of_set}):
            values = [method.sets.get(name, {}).get(seed) for name in names]
            cells = [Cell(MISSING) if value is None else Cell(text(value, ""), value) for value in values]
            rows.append([Cell(method.label), Cell(str(seed), seed), *cells])
    return Table(["Method", "Seed", *names], rows)


def rank(comparison: MethodComparison, method: Method, place: int) -> Cell:
    """Return the cell with the range of the method's rank; `place`, the rank by the mean alone, is the sort key."""
    first, last = comparison.ranks(method)
    return Cell(f"{first}–{last}" if first < last else str(first), place)


def _description(method: Method) -> str:
    others = sorted({run.name for run in method.runs} - {method.runs[0].name})
    notes = [method.settings, *([f"also named {', '.join(others)}"] if others else [])]
    return "; ".join([*notes, *([f"diverged seeds: {method.diverged}"] if method.diverged else [])])


def _score(score: SeedMean | None, text: Format) -> tuple[Cell, Cell]:
    """Return the cells of the mean and of its interval; the latter is empty if there are too few seeds."""
    if score is None:
        return Cell(MISSING), Cell(MISSING)
    return Cell(text(score.value, ""), score.value), Cell(score.interval(text=text), score.low)


def difference_cell(difference: SeedMean | None, shown: Format) -> Cell:
    """Return the cell of a paired difference, marked if its interval excludes 0; None: no common seeds."""
    if difference is None:
        return Cell(MISSING)
    mark = {1: "▲ ", -1: "▼ ", 0: ""}[difference.sign]
    tones: dict[int, Tone] = {1: "good", -1: "bad", 0: ""}
    text = f"{mark}{shown(difference.value, '+')}"
    return Cell(text, difference.value, tones[difference.sign], note=difference.interval("+", shown))


def _pairwise_differences(comparison: MethodComparison) -> Table:
    text = comparison.text()
    rows = [
        [
            Cell(a.label),
            *(Cell("") if a is b else difference_cell(comparison.difference(a, b), text) for b in comparison.ranked),
        ]
        for a in comparison.ranked
    ]
    return Table(["Method", *(method.label for method in comparison.ranked)], rows)


def _means_by_set(comparison: MethodComparison) -> Table:
    """Return a row per data set: the mean of each method, and its paired difference to the reference."""
    methods, reference, text = comparison.ranked, comparison.reference, comparison.text()
    rows = []
    for name in dict.fromkeys(name for method in methods for name in method.sets):
        cells = [Cell(name)]
        for method in methods:
            ours, theirs = method.sets.get(name, {}), reference.sets.get(name, {})
            mean = _score(comparison.mean(method, ours), text)[0]
            difference = difference_cell(None if method is reference else seed_mean(paired(ours, theirs)), text)
            note = "" if difference.sort is None else f"{difference.text} {difference.note}"
            cells.append(replace(mean, tone=difference.tone, note=note))
        rows.append(cells)
    return Table(["Data set", *(method.label for method in methods)], rows)


def _curve(label: str, means: Iterable[tuple[float, SeedMean | None]], unit: int) -> Line:
    """Return the line through the known means, each with its interval if it has one."""
    known = [(x, one) for x, one in means if one]
    spread = [None if one.low is None or one.high is None else (unit * one.low, unit * one.high) for _, one in known]
    return Line(label, [x for x, _ in known], [unit * one.value for _, one in known], spread=spread)


def _ladder_section(ladder: Ladder, number: int) -> Section:
    lines, unit = [Line(ladder.reference, ladder.x, [0.0] * len(ladder.x))], ladder.points[0].unit
    lines += [_curve(method, zip(ladder.x, gains, strict=True), unit) for method, gains in ladder.gains.items()]
    score = with_unit(ladder.points[0])
    caption = f"Gain over {ladder.reference} in {score} against {ladder.quantity}, with 95% intervals"
    figure = line_plot(f"ladder-{number}", caption, lines, ladder.quantity, "gain", log_x=True, log_y=False)
    return Section(ladder_title(ladder), [ladder_table(ladder), Figures([figure])])


def ladder_title(ladder: Ladder) -> str:
    """Return `Gain over clip against samples seen: small:conv and small:bag on scenes`."""
    return f"Gain over {ladder.reference} against {ladder.quantity}: {_towers_and_data(ladder.points[0].conditions)}"


def ladder_table(ladder: Ladder) -> Table:
    """Return a row per method: its gain over the reference at each point."""
    points = [one.conditions[AXES[ladder.axis][0]] for one in ladder.points]
    text = ladder.points[0].text()
    rows = [[Cell(method), *(difference_cell(gain, text) for gain in gains)] for method, gains in ladder.gains.items()]
    return Table([f"Gain over {ladder.reference}", *points], rows)


def comparison_table(comparisons: list[MethodComparison]) -> list[list[object]]:
    """Return a header and one row per method and metric, with rank and paired difference for the ranking metric."""
    header = ["comparison", "method", "settings", "measure", "seeds", "value", "low", "high", *RANKING_COLUMNS]
    table: list[list[object]] = [[*header]]
    for number, comparison in enumerate(comparisons, 1):
        for method in (*comparison.ranked, *comparison.unranked):
            for name, values in method.values.items():
                score = comparison.mean(method, values)
                assert score is not None  # `Method.values` holds no empty entry
                row = [number, method.name, method.settings, name, score.seeds, score.value, score.low, score.high]
                by_rank: list[object] = [""] * len(RANKING_COLUMNS)
                if name == comparison.by:
                    difference = comparison.difference(method, comparison.reference)
                    numbers = (difference.value, difference.low, difference.high) if difference else ("", "", "")
                    by_rank = [*comparison.ranks(method), comparison.reference.name, *numbers]
                table.append([*row, *by_rank])
    return table
