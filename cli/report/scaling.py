"""`clipx report scaling`: the effect as a function of scale, in the terminal and on a page."""

import shlex
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.settings.arguments import flag, number, split
from clipx.config.schema import AXES
from clipx.utils.registry import one_of
from clipx.utils.terminal import stdout_console
from evaluation.analyses import comparison
from evaluation.analyses.ladder_runs import refuse_short
from evaluation.analyses.scaling import AGAINST, LEAST, Ladder, find_ladders
from evaluation.report import blocks, writer
from evaluation.report.pages import scaling as page
from evaluation.runs import reader

SHOWN = ("Arm", "c", "d", "Predicted", "Measured", "Inside", "Problem")  # columns in the terminal


def scaling(arguments: list[str]) -> None:
    """Run `clipx report scaling RUN_OR_DIR...`: print laws and gains, write scaling.html, .md and .csv.

    Raises UserError: no ladder of enough points, arms without a common seed, or an invalid argument.
    """
    known = {"axis": "", "against": "", "reference": "", "by": comparison.MEAN, "least": str(LEAST)}
    places, given = split(arguments, known | {"out": "", "limited": "false"}, "report scaling", "RUN_OR_DIR...")
    for key, allowed in (("axis", AXES), ("against", AGAINST)):
        if given[key]:
            one_of(given[key], allowed, key)
    choice = {key: given[key] for key in ("axis", "against", "reference", "by")}
    least, limited = number(given["least"], "least", 0, 1), flag(given["limited"], "limited")
    command = shlex.join(["clipx", "report", "scaling", *arguments])
    paths, out = [Path(place) for place in places], Path(given["out"] or places[0])
    report_ladders(paths, out, command, least, limited, **choice)


def report_ladders(
    paths: list[Path],
    out: Path,
    command: str,
    least: float = LEAST,
    limited: bool = False,
    axis: str = "",
    against: str = "",
    reference: str = "",
    by: str = comparison.MEAN,
) -> None:
    """Print laws and gains, write the report to the folder `out`; `command` is shown in it.

    Raises UserError: no ladder of enough points, arms without a common seed, or an unknown arm or task.
    """
    runs = reader.find(paths, limited=limited)
    one_of(by, (comparison.MEAN, *comparison.rankable(runs)), "by")
    found, left_out = find_ladders(runs, by, against, axis, reference)
    if not found:
        refuse_short(runs, axis)
    console = stdout_console()
    for ladder in found:
        _print(console, ladder)
    for line in left_out:
        print(line)
    written = writer.write_scaling(found, left_out, least, out, command)
    print(written.html, written.markdown, written.csv, sep="\n")


def _print(console: Console, ladder: Ladder) -> None:
    console.print(Text(f"{page.title(ladder)}\n{page.lead(ladder)}", style="bold"))
    laws = page.laws(ladder)
    at = [laws.columns.index(name) for name in SHOWN]
    console.print(_table(list(SHOWN), [[row[k] for k in at] for row in laws.rows]))
    if ladder.gains:
        gains = page.gains(ladder)
        console.print(_table(gains.columns, gains.rows))


def _table(columns: list[str], rows: list[list[blocks.Cell]]) -> Table:
    table = Table(box=box.SIMPLE, caption="[95% interval]", caption_justify="left")
    for k, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if k else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("\n".join(filter(None, (cell.text, cell.note)))) for cell in row))
    return table
