"""`clipx report compare`: rank methods under the same conditions, in the terminal and on a page."""

import shlex
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.settings.arguments import flag, split
from clipx.errors import UserError
from clipx.utils.registry import one_of
from clipx.utils.terminal import stdout_console
from evaluation.analyses import comparison
from evaluation.analyses.comparison import MethodComparison, seed_mean
from evaluation.claims.measures import CANONICAL_HELD_OUT, canonical_name, dataset_key
from evaluation.report import writer
from evaluation.report.pages import comparison as page
from evaluation.runs import reader
from evaluation.runs.description import digits
from evaluation.runs.groups import group_runs

GEOMETRY = "gap"  # geometry measure in the printed table; the page shows all


def compare(arguments: list[str]) -> None:
    """Run `clipx report compare`: print the ranking, write compare.html, .md, .csv and .tex."""
    known = {"by": comparison.MEAN, "on": "", "reference": "", "out": "", "limited": "false"}
    given_paths, given = split(arguments, known, "report compare", "RUN_OR_DIR...")
    paths = [Path(path) for path in given_paths]
    on = [name for name in given["on"].strip("[]").split(",") if name]
    runs = reader.find(paths, limited=flag(given["limited"], "limited"))
    by = one_of(given["by"], (comparison.MEAN, *comparison.rankable(runs)), "by")
    _check_sets(on, {row.dataset for run in runs for row in run.results})
    found, left_out = comparison.compare(group_runs(runs), by, tuple(map(dataset_key, on)))
    if reference := given["reference"]:
        one_of(reference, {method.label for one in found for method in one.ranked}, "reference")
        found = [replace(one, reference_label=reference) for one in found]
    console = stdout_console()
    for one, title in zip(found, page.names(found), strict=True):
        _print(console, one, title)
    for group in left_out:
        print(group.line())
    if note := reader.limited_note(runs):
        print(note)
    command = shlex.join(["clipx", "report", "compare", *arguments])
    written = writer.write_comparison(found, left_out, Path(given["out"] or paths[0]), command)
    print(written.html, written.markdown, written.csv, written.csv.with_suffix(".tex"), sep="\n")


def _check_sets(names: list[str], evaluated: set[str]) -> None:
    """Raise UserError if a name of on= is none of the evaluated data sets."""
    known = {*map(canonical_name, evaluated), *map(dataset_key, evaluated)}
    for name in names if known else ():
        if canonical_name(name) == CANONICAL_HELD_OUT and CANONICAL_HELD_OUT not in known:
            raise UserError("on=held_out needs results on held-out pairs: clipx eval RUN... datasets=[held_out]")
        if dataset_key(name) not in known:
            one_of(name, evaluated, "on")


def _print(console: Console, one: MethodComparison, title: str) -> None:
    console.print(Text(page.lead(one, title), style="bold"))
    if not one.ranked:
        return
    table = Table(box=box.SIMPLE, caption="[95% interval over paired seeds]", caption_justify="left")
    to_reference = "to the reference" if one.reference_label == one.reference.label else "to the first"
    for column in ("rank", "method", "score", to_reference, GEOMETRY, "seeds"):
        is_name = column == "method"
        table.add_column(column, justify="left" if is_name else "right", overflow="fold", no_wrap=not is_name)
    for position, method in enumerate(one.ranked, 1):
        score = seed_mean(method.values[one.by])
        assert score is not None  # methods without a score are not ranked
        difference = None if method is one.reference else one.difference(method, one.reference)
        geometry = seed_mean(method.values.get(GEOMETRY, {}))
        table.add_row(
            page.rank(one, method, position).text,
            Text(method.label),
            digits(score.value),
            Text(f"{digits(difference.value, '+')} {difference.interval('+')}".rstrip()) if difference else "",
            "" if geometry is None else digits(geometry.value),
            str(score.seeds),
        )
    console.print(table)
