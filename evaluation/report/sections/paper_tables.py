"""The papers' tables with our numbers beside theirs; an empty cell's row says which command fills it."""

from statistics import fmean

from evaluation.claims.evidence import Evidence, Seeds
from evaluation.claims.published import TABLES, Column, PaperTable, printed
from evaluation.report.blocks import Block, Cell, Details, Table, Text
from evaluation.statistics import t_interval

EMPTY = "–"


def blocks(evidence: Evidence) -> list[Block]:
    """A folded block a table of the papers that a run bears on; the others in one sentence."""
    run = [table for table in TABLES if table.recipe in evidence.runs]
    others = sorted({table.recipe for table in TABLES} - {table.recipe for table in run})
    found: list[Block] = [
        Details(
            f"Paper {table.paper}: {table.title}, {table.recipe}",
            [Text(f"Published: {table.source}."), _table(table, evidence)],
        )
        for table in run
    ]
    if others:
        recipes = ", ".join(f"clipx reproduce recipe={recipe}" for recipe in others)
        found.append(Text(f"Not run at the papers' scale, so without a table here: {recipes}", "muted"))
    return found


def _table(table: PaperTable, evidence: Evidence) -> Table:
    arms = evidence.runs[table.recipe]
    return Table(
        ["Arm", *(column.label for column in table.columns), "To fill empty cells"],
        [_row(table, arm, published.split(), arms.get(arm, {})) for arm, published in table.rows.items()],
    )


def _row(table: PaperTable, arm: str, published: list[str], seeds: Seeds) -> list[Cell]:
    ours = [_ours(column, table.columns, seeds) for column in table.columns]
    cells = [_cell(values, text) for values, text in zip(ours, published, strict=True)]
    command = ""
    if not seeds:
        command = f"clipx train recipe={table.recipe} arm={arm} seed=0"
    elif not all(ours):
        command = f"clipx reproduce recipe={table.recipe} arms={arm}"  # evaluates as the paper's columns need it
    return [Cell(arm), *cells, Cell(command, tone="muted")]


def _ours(column: Column, columns: tuple[Column, ...], seeds: Seeds) -> list[float]:
    """One number a seed that has it, in the paper's unit."""
    if column.reader is None:
        of_others = [_ours(one, columns, seeds) for one in columns if one.reader is not None]
        complete = all(len(values) == len(seeds) for values in of_others)
        return [fmean(of_seed) for of_seed in zip(*of_others, strict=True)] if complete else []
    pieces = [column.reader.read(run) for run in seeds.values()]
    return [column.scale * fmean(of_run.values()) for of_run in pieces if of_run]


def _cell(ours: list[float], published: str) -> Cell:
    """Our mean; below it the paper's number, the difference and, from two seeds on, its 95% interval."""
    theirs = printed(published)
    paper = f"paper {published}" if theirs is not None else "not in the paper"
    if not ours:
        return Cell(EMPTY, note=paper, tone="muted")
    digits = len(published.partition("±")[0].partition(".")[2]) if theirs is not None else 2
    value = fmean(ours)
    if theirs is not None:
        paper += f", {value - theirs:+.{digits}f}"
        if len(ours) > 1:
            _, low, high = t_interval([one - theirs for one in ours])
            paper += f" [{low:.{digits}f}, {high:.{digits}f}]"
    return Cell(f"{value:.{digits}f}", value, note=paper)
