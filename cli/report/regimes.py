"""`clipx report regimes`: the training regime of each recipe beside the paper's, in the terminal and as Markdown."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.settings.arguments import split
from clipx.errors import UserError
from clipx.utils.files import write_text
from clipx.utils.terminal import stdout_console
from evaluation.claims.conditions import FAR, ROWS, Measured, Regime, is_far, regimes
from evaluation.report import blocks
from evaluation.report.render.markdown import render_markdown
from evaluation.runs import reader

FILE = "regimes.md"
NOT_GIVEN = "not given"
LEAD = (
    "Median over the runs of a recipe, with the range in brackets if they differ. Factor: our value divided by the "
    f"paper's, or by the nearer end of the paper's range. ▲: factor above {FAR:g}; ▼: factor below 1/{FAR:g}. "
    "Final training loss: mean over the last tenth of the logged steps; where the objective has a term `clip`, the "
    "loss is that term alone. False negative: a caption that is also true of another image in the batch; counted only "
    "for rendered scenes, where the truth is known."
)


def report_regimes(arguments: list[str]) -> None:
    """Run `clipx report regimes RUN_OR_DIR... [out=DIR]`: print the tables and write regimes.md.

    Raises UserError: no run has a logged training step.
    """
    runs, given = split(arguments, {"out": ""}, "report regimes", "RUN_OR_DIR...")
    paths = [Path(run) for run in runs]
    found = regimes(reader.find(paths))
    if not found:
        raise UserError(f"no run at or below {', '.join(runs)} has a logged training step")
    console = stdout_console()
    for regime in found:
        _print(console, regime)
    file = Path(given["out"] or runs[0]) / FILE
    write_text(file, markdown(found))
    print(file)


def markdown(found: list[Regime]) -> str:
    """Return the tables as Markdown, one section per recipe, with the source of each number of the paper."""
    sections = [blocks.Section(regime.recipe, [blocks.Text(_runs(regime)), _table(regime)]) for regime in found]
    text, _ = render_markdown(blocks.Document("Training regimes", LEAD, sections, ""), "")
    return text


def _table(regime: Regime) -> blocks.Table:
    rows = []
    for row, label in ROWS.items():
        cells = [blocks.Cell(text) for text in (label, _paper(regime, row), _ours(regime.measured.get(row)))]
        rows.append([*cells, _factor(regime, row), blocks.Cell(regime.given(row).source)])
    paper = f"paper {regime.paper.paper}" if regime.paper else "paper"
    return blocks.Table(["", paper, regime.recipe, "factor", "source"], rows)


def _print(console: Console, regime: Regime) -> None:
    """Print the table without the sources."""
    shown, table = _table(regime), Table(box=box.SIMPLE, title=_runs(regime), title_justify="left")
    for column in shown.columns[:-1]:
        table.add_column(column, justify="right" if column else "left", overflow="fold")
    for cells in shown.rows:
        table.add_row(*(Text(cell.text, style="yellow" if cell.tone else "") for cell in cells[:-1]))
    console.print(table)


def _runs(regime: Regime) -> str:
    part = f", beside paper {regime.paper.paper}: {regime.paper.name}" if regime.paper else ""
    return f"{regime.recipe}: {regime.runs} run{'s' if regime.runs > 1 else ''}{part}"


def _paper(regime: Regime, row: str) -> str:
    if regime.paper is None:
        return ""
    value = regime.given(row).value
    if value is None:
        return NOT_GIVEN
    return " to ".join(map(_number, value)) if isinstance(value, list) else _number(value)


def _ours(measured: Measured | None) -> str:
    if measured is None:
        return ""
    middle, low, high = map(_number, (measured.median, measured.low, measured.high))
    return middle if low == high else f"{middle} [{low}, {high}]"


def _factor(regime: Regime, row: str) -> blocks.Cell:
    """Return the factor as `2.5` or `1/2.4`, with ▲ or ▼ if it is far from 1; "" if there is no factor."""
    factor = regime.factor(row)
    if factor is None:
        return blocks.Cell("")
    text = _number(max(factor, 1 / factor))
    if factor < 1 and text != "1":
        text = f"1/{text}"
    return blocks.Cell(f"{text} {'▲' if factor > 1 else '▼'}", tone="bad") if is_far(factor) else blocks.Cell(text)


def _number(value: float) -> str:
    """Format with three significant digits; numbers of 1,000 or more as whole numbers."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value and abs(value) < 1e-3:
        return f"{value:.2e}".replace("e-0", "e-")
    return f"{value:.3g}"
