"""`clipx report compare` as a document: the ranking with intervals, geometry beside accuracy, every pair, figures."""

import csv
import io

from evaluation.analyses.comparison import GEOMETRY, MEAN, TASKS, Estimate, Method, MethodComparison, estimate
from evaluation.report.blocks import Block, Cell, Details, Document, Facts, Figure, Figures, Section, Table, Text, Tone
from evaluation.report.figures import geometry
from evaluation.runs.description import MISSING

NAMES = {
    MEAN: "mean of tasks",
    "zeroshot": "zero-shot",
    "linear_probe": "linear probe",
    "retrieval": "R@1 both ways",
    "pairs": "minimal pairs",
    "gap": "gap",
    "uniformity": "uniformity",
    "alignment": "alignment",
    "margin": "mean margin",
}
MOST_NAMED = 4  # in a sentence
RULE = (
    "Differences are taken seed by seed: runs of one seed saw the same samples in the same order. Their 95% intervals "
    "are Student's t over the seeds, at least three. A rank is the range that those intervals leave: 1–3 may be the "
    "best. Each interval is at 95% by itself: among the pairs of many methods some exclude 0 by chance, one in twenty "
    "where nothing differs."
)
FOOT = (
    "Numbers are fractions, and means over the data sets that all compared runs share. ▲ and ▼: the whole 95% "
    "interval of the paired difference lies above or below 0. Click a column's head to sort."
)


def build_comparison(comparisons: list[MethodComparison], left_out: list[str]) -> Document:
    """A section a comparison."""
    sections = [_section(one, number) for number, one in enumerate(comparisons, 1)]
    if left_out:
        sections.append(Section("Left out", [Text(line, "muted") for line in left_out]))
    count = sum(len(one.ranked) + len(one.unranked) for one in comparisons)
    lead = " ".join(_lead(one) for one in comparisons)
    return Document(f"Comparison of {count} methods", lead, sections, FOOT)


def _lead(one: MethodComparison) -> str:
    if not one.ranked:
        return f"No run has a value of {NAMES[one.by]} (clipx eval checkpoint=RUN adds results, by=NAME takes others)."
    best, *others = one.ranked
    may_be = [method.label for method in others if one.ranks(method)[0] == 1]
    shared = f"Under {_short(one)}, {best.label} is first of {len(one.ranked)} by {NAMES[one.by]}"
    if not others:
        return f"{shared}; no other is evaluated."
    if not may_be:
        return f"{shared}, and told apart from all others."
    more = f" and {len(may_be) - MOST_NAMED} more" if len(may_be) > MOST_NAMED else ""
    return f"{shared}; not told apart from it: {', '.join(may_be[:MOST_NAMED])}{more}."


def _short(one: MethodComparison) -> str:
    length = ("epochs", "samples")
    of_train = [f"{one.conditions[f'train.{k}']} {k}" for k in length if one.conditions[f"train.{k}"] != MISSING]
    towers = dict.fromkeys(one.conditions[f"model.{side}.name"] for side in ("image", "text"))
    return f"{' and '.join(towers)} on {one.conditions['data.name']}, {', '.join(of_train)}"


def _section(one: MethodComparison, number: int) -> Section:
    blocks: list[Block] = []
    if one.ranked:
        of = f" of {', '.join(NAMES[task] for task in one.tasks)}" if one.by == MEAN else ""
        blocks = [Text(f"By the {NAMES[one.by]}{of}. {RULE}", "muted"), ranking(one)]
        if figures := _figures(one, number):
            blocks.append(Figures(figures))
    if len(one.ranked) > 2:
        blocks.append(Details("Every pair: row minus column", [_pairs(one)]))
    for method in one.unranked:
        why = f"{method.diverged} seeds diverged" if method.diverged else "not evaluated, or not on what the others are"
        blocks.append(Text(f"Not ranked: {method.label} ({why})", "muted"))
    blocks.append(Details("The same in all of these runs", [Facts(list(one.conditions.items()))]))
    return Section(_short(one), blocks)


def columns(one: MethodComparison) -> list[str]:
    """Tasks, then geometry: those that any ranked method has a number of."""
    known = [name for name in (*TASKS, *GEOMETRY) if any(method.values.get(name) for method in one.ranked)]
    return [name for name in known if name != one.by]


def ranking(one: MethodComparison) -> Table:
    """A row a method, best first."""
    shown = columns(one)
    head = ["Rank", "Method", NAMES[one.by], "95% interval", f"Difference to {one.ranked[0].label}"]
    rows = [
        [
            rank(one, method, place),
            Cell(method.label, note=method.settings + _seeds_lost(method)),
            *_value(estimate(method.values[one.by])),
            _difference(None if method is one.ranked[0] else one.difference(method, one.ranked[0])),
            *(_value(estimate(method.values.get(name, {})))[0] for name in shown),
            Cell(str(len(method.values[one.by])), len(method.values[one.by])),
        ]
        for place, method in enumerate(one.ranked, 1)
    ]
    return Table([*head, *(NAMES[name] for name in shown), "Seeds"], rows)


def rank(one: MethodComparison, method: Method, place: int) -> Cell:
    """The range of ranks; sorts by the order of the means."""
    first, last = one.ranks(method)
    return Cell(f"{first}–{last}" if first < last else str(first), place)


def _seeds_lost(method: Method) -> str:
    return f"; {method.diverged} seeds diverged" if method.diverged else ""


def _value(found: Estimate | None) -> tuple[Cell, Cell]:
    """The mean and its interval."""
    if found is None:
        return Cell(MISSING), Cell(MISSING)
    return Cell(f"{found.value:.3f}", found.value), interval(found)


def interval(found: Estimate) -> Cell:
    """Empty with fewer seeds than an interval needs."""
    if found.low is None or found.high is None:
        return Cell("")
    return Cell(f"[{found.low:.3f}, {found.high:.3f}]", found.low)


def _difference(found: Estimate | None) -> Cell:
    if found is None:
        return Cell(MISSING)
    sign = {1: "▲ ", -1: "▼ ", 0: ""}[found.sign]
    tones: dict[int, Tone] = {1: "good", -1: "bad", 0: ""}
    note = f"[{found.low:+.3f}, {found.high:+.3f}]" if found.low is not None and found.high is not None else ""
    return Cell(f"{sign}{found.value:+.3f}", found.value, tones[found.sign], note=note)


def _pairs(one: MethodComparison) -> Table:
    rows = [
        [Cell(a.label), *(Cell("") if a is b else _difference(one.difference(a, b)) for b in one.ranked)]
        for a in one.ranked
    ]
    return Table(["Method", *(method.label for method in one.ranked)], rows)


def _figures(one: MethodComparison, number: int) -> list[Figure]:
    """The score against each number of the geometry, a point a method."""
    drawn = []
    for name in ("gap", "uniformity"):
        points = {
            method.label: (x.value, y.value)
            for method in one.ranked
            if (x := estimate(method.values.get(name, {}))) and (y := estimate(method.values[one.by]))
        }
        if len(points) > 2:
            caption = f"{NAMES[one.by]} against {NAMES[name]}, a point a method (mean of its seeds)"
            drawn.append(geometry.scatter(f"compare-{number}-{name}", caption, points, NAMES[name], NAMES[one.by]))
    return drawn


def table(comparisons: list[MethodComparison]) -> str:
    """As CSV at full precision: a row a method and measure, the paired difference in what they are ranked by."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["comparison", "method", "settings", "measure", "seeds", "value", "low", "high", *DIFFERENCES])
    for number, one in enumerate(comparisons, 1):
        for method in (*one.ranked, *one.unranked):
            for name, values in method.values.items():
                found = estimate(values)
                assert found is not None  # measures without a value are not kept
                row = [number, method.label, method.settings, name, found.seeds, found.value, found.low, found.high]
                writer.writerow([*row, *(_ranked(one, method) if name == one.by else [""] * len(DIFFERENCES))])
    return text.getvalue()


DIFFERENCES = ("first_rank", "last_rank", "to_first", "to_first_low", "to_first_high")


def _ranked(one: MethodComparison, method: Method) -> list[object]:
    found = one.difference(method, one.ranked[0])
    return [*one.ranks(method), *((found.value, found.low, found.high) if found else ("", "", ""))]
