"""The page and the CSV of `clipx report diff`: two models on the same items, and the items they disagree on."""

from pathlib import Path

import numpy as np

from evaluation.compare.items import Answers, Pair, show
from evaluation.report.blocks import Block, Cell, Details, Document, Section, Table, Text, Tone
from evaluation.report.writer import ReportFiles, save
from evaluation.runs.description import digits

DRAWN = 12  # at most this many items are shown that only A has right, and as many that only B has right
RULE = (
    "The difference is the share of items that A has right minus the share that B has right, with a 95% interval from "
    "a bootstrap that draws the same items for both. p is McNemar's exact test. Captions of one image are not "
    "independent, so for captions the interval and p are computed over images. The p-values are not corrected for "
    "multiple comparisons. Intervals and p-values account for the choice of items, not for the choice of seeds: to "
    "compare methods, use clipx report compare."
)
FOOTER = (
    "A model has an item right if it ranks a right answer first. A minimal pair is right if this holds for both of its "
    "queries. Click a column header to sort."
)
COLUMNS = ["task", "dataset", "split", "metric", "item", "unit", "right", "rank_a", "rank_b"]


def write_disagreement(pairs: list[Pair], names: tuple[str, str], out: Path) -> ReportFiles:
    """Write diff.html, diff.md and diff.csv, which compare two models item by item, to the folder `out`."""
    return save(build_disagreement(pairs, names), disagreement_table(pairs, names), out, "diff")


def build_disagreement(pairs: list[Pair], names: tuple[str, str]) -> Document:
    """Return the document; `names`: the models, A and B."""
    sections = [Section("Differences", [Text(RULE, "muted"), differences(pairs)])]
    for pair in pairs:
        blocks = [block for first in (True, False) for block in _examples(pair, first, is_open=len(sections) == 1)]
        if blocks:
            sections.append(Section(f"{pair.a.title}: {pair.a.metric}", blocks))
    return Document(f"A: {names[0]}, B: {names[1]}", _lead(pairs), sections, FOOTER)


def _lead(pairs: list[Pair]) -> str:
    signs = [_sign(pair) for pair in pairs]
    counts = f"A is better on {signs.count(1)} and B on {signs.count(-1)} of {len(pairs)} metrics"
    return f"{counts} (95% intervals over the items that both answered)."


def _sign(pair: Pair) -> int:
    _, low, high = pair.difference
    return (low > 0) - (high < 0)


def differences(pairs: list[Pair]) -> Table:
    """Return one row per metric: both values, their paired difference, the four counts, McNemar's p."""
    tones: dict[int, Tone] = {1: "good", -1: "bad", 0: ""}
    rows = []
    for pair in pairs:
        n, units = len(pair.a.item), pair.units
        value, low, high = pair.difference
        p = pair.p_value
        counts = [pair.count(*both) for both in ((True, True), (True, False), (False, True), (False, False))]
        rows.append([
            Cell(pair.a.metric, note=pair.a.title),
            Cell(f"{n:,}", n, note=f"of {units:,} images" if units < n else ""),
            *(Cell(digits(float(one.right.mean())), float(one.right.mean())) for one in (pair.a, pair.b)),
            Cell(digits(value, "+"), value, tones[_sign(pair)]),
            Cell(f"[{digits(low, '+')}, {digits(high, '+')}]", low),
            *(Cell(f"{count:,}", count) for count in counts),
            Cell(p_text(p), p),
        ])  # fmt: skip
    columns = ["Metric", "Items", "A", "B", "A - B", "95% interval", "Both", "Only A", "Only B", "Neither", "p"]
    return Table(columns, rows)


def p_text(p: float) -> str:
    """Return a p-value with four decimals."""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def _examples(pair: Pair, first: bool, is_open: bool) -> list[Block]:
    """Return a folded table of items that only the first or only the second model has right, drawn at random."""
    found = pair.only(first)
    if not len(found):
        return []
    drawn = np.sort(np.random.default_rng(0).permutation(found)[:DRAWN]).tolist()
    shown, problem = show(pair.a, drawn)
    rows = [
        [
            Cell(str(pair.a.item[at]), float(pair.a.item[at])),
            Cell(one.text, images=one.images),
            *(_rank(answers, at) for answers in (pair.a, pair.b)),
        ]
        for at, one in zip(drawn, shown, strict=True)
    ]
    some = f", {len(drawn)} of them drawn at random" if len(drawn) < len(found) else ""
    title = f"Only {'A' if first else 'B'} is right: {len(found):,}{some}"
    note: list[Block] = [Text(problem, "muted")] if problem else []
    return [Details(title, [*note, Table(["Item", "Truth", "Rank by A", "Rank by B"], rows)], open=is_open)]


def _rank(answers: Answers, at: int) -> Cell:
    rank = answers.rank[at]
    if rank is None:
        return Cell("right" if answers.right[at] else "wrong")
    return Cell(f"{rank:,}", rank)


def disagreement_table(pairs: list[Pair], names: tuple[str, str]) -> list[list[object]]:
    """Return a header and one row per item that only one model has right; `right` names that model."""
    table: list[list[object]] = [[*COLUMNS]]
    for pair in pairs:
        for first in (True, False):
            for at in pair.only(first).tolist():
                key = (pair.a.task, pair.a.dataset, pair.a.split, pair.a.metric)
                place = (int(pair.a.item[at]), int(pair.a.unit[at]), names[0 if first else 1])
                ranks = ["" if one.rank[at] is None else one.rank[at] for one in (pair.a, pair.b)]
                table.append([*key, *place, *ranks])
    return table
