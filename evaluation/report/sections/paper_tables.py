"""Section "Paper tables": the papers' tables with our numbers, and the commands that fill empty cells."""

from statistics import fmean

from evaluation.claims.evidence import Evidence, Seeds
from evaluation.claims.published import TABLES, Column, PaperTable, printed
from evaluation.report.blocks import Block, Cell, Details, Table, Text
from evaluation.statistics import t_interval

EMPTY = "–"


def paper_tables(evidence: Evidence) -> list[Block]:
    """Return the folded tables of the recipes that were run, and one sentence on the others."""
    blocks: list[Block] = [
        Details(
            f"Paper {table.paper}: {table.title}, {table.recipe}",
            [Text(f"Published: {table.source}."), _table(table, evidence.runs[table.recipe])],
        )
        for table in TABLES
        if table.recipe in evidence.runs
    ]
    if not_run := sorted({table.recipe for table in TABLES} - set(evidence.runs)):
        commands = ", ".join(f"clipx reproduce recipe={recipe}" for recipe in not_run)
        blocks.append(Text(f"Tables without runs. To fill them with runs at the papers' scale: {commands}", "muted"))
    return blocks


def _table(table: PaperTable, arms: dict[str, Seeds]) -> Table:
    return Table(
        ["Arm", *(column.label for column in table.columns), "To fill empty cells"],
        [_row(table, arm, published.split(), arms.get(arm, {})) for arm, published in table.rows.items()],
    )


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
    return [column.scale * fmean(by_dataset.values()) for by_dataset in scores if by_dataset]


def _cell(values: list[float], published: str) -> Cell:
    """Return our mean; below it the paper's number, the difference and, for two seeds or more, its 95% interval."""
    theirs = printed(published)
    note = f"paper {published}" if theirs is not None else "not in the paper"
    if not values:
        return Cell(EMPTY, note=note, tone="muted")
    digits = len(published.partition("±")[0].partition(".")[2]) if theirs is not None else 2
    ours = fmean(values)
    if theirs is not None:
        note += f", {ours - theirs:+.{digits}f}"
        if len(values) > 1:
            _, low, high = t_interval([value - theirs for value in values])
            note += f" [{low:.{digits}f}, {high:.{digits}f}]"
    return Cell(f"{ours:.{digits}f}", ours, note=note)
