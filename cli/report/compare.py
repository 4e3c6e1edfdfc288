"""`clipx report compare`: rank methods under the same conditions, in the terminal and on a page."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.settings.arguments import split
from clipx.utils.registry import one_of
from evaluation.analyses import comparison
from evaluation.analyses.comparison import MethodComparison, estimate
from evaluation.report import writer
from evaluation.report.sections import comparison as sections
from evaluation.runs import reader
from evaluation.runs.groups import group_runs

GEOMETRY = "gap"  # the measure printed with the score; the page has the others


def compare(arguments: list[str]) -> None:
    """Run `clipx report compare`: print the ranking, write compare.html, compare.md and compare.csv."""
    places, given = split(arguments, {"by": comparison.MEAN, "out": ""}, "report compare", "RUN_OR_DIR...")
    by = one_of(given["by"], (comparison.MEAN, *comparison.TASKS), "by")
    paths = [Path(place) for place in places]
    found, left_out = comparison.compare(group_runs(reader.find(paths)), by)
    console = Console(highlight=False)
    for one in found:
        _print(console, one)
    for line in left_out:
        console.print(line, markup=False, soft_wrap=True)
    written = writer.write_comparison(found, left_out, Path(given["out"] or paths[0]))
    print(written.html, written.markdown, written.csv, sep="\n")


def _print(console: Console, one: MethodComparison) -> None:
    document = sections.build_comparison([one], [])
    console.print(Text(document.lead, style="bold"))
    if not one.ranked:
        return
    table = Table(box=box.SIMPLE, caption="[95% interval over paired seeds]", caption_justify="left")
    for column in ("rank", "method", "score", "to the first", GEOMETRY, "seeds"):
        is_name = column == "method"
        table.add_column(column, justify="left" if is_name else "right", overflow="fold", no_wrap=not is_name)
    for place, method in enumerate(one.ranked, 1):
        score = estimate(method.values[one.by])
        assert score is not None  # methods without a score are not ranked
        difference = one.difference(method, one.ranked[0]) if place > 1 else None
        geometry = estimate(method.values.get(GEOMETRY, {}))
        table.add_row(
            sections.rank(one, method, place).text,
            Text(method.label),
            f"{score.value:.3f}",
            Text(_signed(difference)) if difference else "",
            "" if geometry is None else f"{geometry.value:.3f}",
            str(score.seeds),
        )
    console.print(table)


def _signed(difference: comparison.Estimate) -> str:
    if difference.low is None or difference.high is None:
        return f"{difference.value:+.3f}"
    return f"{difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
